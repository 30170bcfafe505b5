"""`epifed explain`: the guarantee of one concrete result, in plain sentences."""

from pathlib import Path
from typing import Annotated

import typer

from epifed.cli.kit import AsJson
from epifed.files import to_json


def explain(
    result: Annotated[
        Path,
        typer.Argument(
            metavar="RESULT",
            help="A directory by 'epifed run', 'reproduce' or 'backtest', or a release by 'train'.",
            show_default=False,
        ),
    ],
    ledger: Annotated[
        Path | None,
        typer.Option(help="The ledger that paid for a release, to vouch for it; only read."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say in plain sentences what a result guarantees, to whom, and what it does not."""
    from epifed.explain import explain as read

    found = read(result, ledger)
    print(to_json(found.to_dict()) if as_json else "\n\n".join(found.sentences()))
