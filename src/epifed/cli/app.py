"""The command line: one file per command, gathered here."""

import sys

import typer

from epifed.cli import (
    audit,
    backtest,
    calibrate,
    data,
    explain,
    federation,
    figures,
    forecast,
    ledger,
    report,
    reproduce,
    run,
    simulate,
    train,
)
from epifed.errors import EpifedError

app = typer.Typer(
    name="epifed",
    help="Differentially private federated forecasting of local case numbers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("reproduce")(reproduce.reproduce)
app.command("figures")(figures.figures)
app.command("report")(report.report)
app.command("backtest")(backtest.backtest)
app.command("train")(train.train)
app.command("forecast")(forecast.forecast)
app.command("simulate")(simulate.simulate)
app.command("explain")(explain.explain)
app.command("audit")(audit.audit)
app.add_typer(data.app, name="data")
app.add_typer(ledger.app, name="ledger")
app.add_typer(federation.app, name="federation")
app.command("calibrate")(calibrate.calibrate)


def main() -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2."""
    try:
        app()
    except EpifedError as error:
        print(f"epifed: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("epifed: interrupted; what was finished is kept", file=sys.stderr)
        sys.exit(130)
