"""The command line: the only layer that prints, prompts or exits."""

from trajsoup.cli.app import main

__all__ = ["main"]
