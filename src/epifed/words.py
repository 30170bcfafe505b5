"""Numbers in sentences."""


def counted(number: int, word: str) -> str:
    """So many of something.

    >>> counted(0, "region"), counted(1, "region"), counted(1200, "region")
    ('0 regions', '1 region', '1,200 regions')
    """
    return f"{number:,} {word}{'s'[: number != 1]}"
