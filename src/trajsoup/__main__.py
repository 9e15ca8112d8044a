"""`python -m trajsoup`."""

from trajsoup.cli import main

main()
