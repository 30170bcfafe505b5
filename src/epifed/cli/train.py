"""`epifed train`: one private training on real data, paid for by a ledger, as a model file."""

from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from epifed.cli.grid import AsJson, GridProgress, LearnerName, ModelName, messages, suited
from epifed.cli.run import preset_for
from epifed.cli.source import FirstDay, LastDay, Reading, reads_cases
from epifed.errors import EpifedError
from epifed.files import to_json
from epifed.settings import read_settings


@reads_cases
def train(
    data: Annotated[Path, typer.Option(help="Case data: any source that 'data check' reads.")],
    out: Annotated[Path, typer.Option(help="The model file to write.")],
    ledger: Annotated[
        Path | None, typer.Option(help="The budget ledger that pays ('epifed ledger init').")
    ] = None,
    simulation: Annotated[
        bool,
        typer.Option("--simulation", help="Research: seeded noise, no ledger, not for release."),
    ] = False,
    learner: LearnerName = None,
    model_name: ModelName = None,
    earlier: Annotated[
        Path | None,
        typer.Option(
            "--continue", metavar="MODEL", help="Start from the public state of this model."
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="ε of this training.", show_default="of the settings")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(help="Settings as TOML.", show_default="the operational ones")
    ] = None,
    first: FirstDay = None,
    last: LastDay = None,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Train one private forecaster on real data and write it as a model file.

    The ledger is asked for the whole budget before the first round and refuses what does not fit;
    noise and sampling come from the system's secure generator. --simulation does without both.
    """
    if simulation == (ledger is not None):
        raise EpifedError(
            f"found {'both' if simulation else 'neither'} of --ledger and --simulation; expected "
            "a ledger that pays for the training ('epifed ledger init'), or --simulation for "
            "research that is never released"
        )
    if settings and (learner or model_name):
        raise EpifedError(
            "found --settings and --learner or --model; expected the settings to say the learner "
            "and the model"
        )

    from epifed.evaluate import score
    from epifed.learners import make_learner
    from epifed.ledger.ledger import Ledger
    from epifed.release import Model, read_model
    from epifed.training import train as run
    from epifed.windows import last_learned, make_clients

    paying = Ledger(ledger) if ledger else None
    panel = reading.read(data)
    begin = first.date() if first else panel.start
    end = last.date() if last else panel.end
    if settings:
        chosen = read_settings(settings)
    elif learner or model_name:
        chosen = suited(learner, model_name, len(panel.regions))
    else:
        chosen = preset_for(panel, 0)
    if epsilon is not None:
        chosen = chosen.but(epsilon=epsilon)
    if make_learner(chosen).whole_period:
        chosen = chosen.but(train_share=1.0)
    start = read_model(earlier).as_of(chosen, last_learned(chosen, begin, end)) if earlier else None
    clients = make_clients(panel, chosen, (begin, end))
    period = f"{begin} … {end}"
    with GridProgress() as progress:
        training = run(
            clients,
            chosen,
            start=start,
            secure=not simulation,
            ledger=paying,
            days=(begin, end),
            watch=lambda i, _: progress(i, chosen.rounds),
        )
    model = Model.of(training, len(clients), period)
    model.write(out)
    scores = score(training, clients).filter(pl.col("mae").is_not_nan())
    if as_json:
        print(
            to_json(
                {
                    "model": str(out),
                    "sha256": model.sha256,
                    "epsilon": model.epsilon,
                    "delta": model.delta,
                    "accountant": model.accountant,
                    "randomness": model.randomness,
                    "ledger_run": model.ledger_run,
                    "scores": scores.to_dicts(),
                }
            )
        )
    else:
        print(model.sentence())
        print(training.calibration.sentence())
        for row in scores.iter_rows(named=True):
            print(f"  {row['method']}: MAE {row['mae']:.4g}, R² {row['r2']:.4g} on held-out days")
    messages.print(f"the model is in {out}")
