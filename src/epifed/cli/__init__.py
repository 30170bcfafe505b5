from epifed.cli.app import main

__all__ = ["main"]
