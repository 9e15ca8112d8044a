"""`trajsoup doctor`."""


def doctor() -> None:
    """Demo."""
