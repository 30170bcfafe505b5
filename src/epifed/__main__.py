"""`python -m epifed`: the command line."""

from epifed.cli import main

main()
