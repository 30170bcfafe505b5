"""`epifed train`: one private training on real data, paid for by a ledger, as a release file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epifed.cli.common import (
    AsJson,
    FirstDay,
    GridProgress,
    LastDay,
    ModelName,
    Reading,
    SettingsRequest,
    messages,
    reads_cases,
    refuse_unwritable,
    refuse_unwritable_file,
    say_note,
)
from epifed.errors import EpifedError
from epifed.files import to_json
from epifed.settings import USUAL

if TYPE_CHECKING:
    from datetime import date

    from epifed.data.panel import CasePanel
    from epifed.ledger.ledger import Ledger
    from epifed.training.public_inputs import ReleasableData


@reads_cases
def train(
    data: Annotated[Path, typer.Option(help="Case data: any source that 'data check' reads.")],
    out: Annotated[Path, typer.Option(help="The release file to write.")],
    ledger: Annotated[
        Path | None,
        typer.Option(help="The ledger that the training is charged to ('epifed ledger init')."),
    ] = None,
    seeded: Annotated[
        bool,
        typer.Option(
            "--seeded",
            help="For research: predictable noise, no ledger, not for release.",
        ),
    ] = False,
    learner: Annotated[
        str | None,
        typer.Option(
            "--learner",
            help="The learner: trend, one-shot, fedavg (the paper), or one of another package.",
            show_default="of the settings, else trend",
        ),
    ] = None,
    model_name: ModelName = None,
    earlier: Annotated[
        Path | None,
        typer.Option(
            "--continue",
            metavar="RELEASE",
            help="Continue from this release, which was charged to the same ledger.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Privacy budget ε of this training.", show_default="of the settings, else 1"
        ),
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(help="Settings as TOML.", show_default="those of the learner")
    ] = None,
    first: FirstDay = None,
    last: LastDay = None,
    regions: Annotated[
        Path | None,
        typer.Option(
            help="Public list of the regions (column 'region'; population, longitude, latitude "
            "if public). A prepared directory has one."
        ),
    ] = None,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Train one private forecaster on your data and write a release file.

    The ledger reserves the whole budget before the first round, and refuses what exceeds it. Noise
    and sampling come from the system's secure generator. --seeded uses neither: its model is for
    research only. With --ledger you give the days (--from, --to) and the list of regions
    (--regions). They are never read from the cases, so that no region's rows change what the
    others send. 'epifed backtest' measures how good such a model is.
    """
    if seeded == (ledger is not None):
        raise EpifedError(
            f"found {'both' if seeded else 'neither'} of --ledger and --seeded; expected "
            "a ledger to charge the training to ('epifed ledger init'), or --seeded for "
            "research that is never released"
        )
    refuse_unwritable_file(out)
    base = {} if settings or model_name else USUAL
    wish = SettingsRequest(settings, base, learner=learner, model=model_name, epsilon=epsilon)

    from epifed.learners.base import make_learner
    from epifed.ledger.ledger import Ledger
    from epifed.privacy.plan import PrivacyPlan
    from epifed.training.loop import expect, train_releasable
    from epifed.training.loop import train as run
    from epifed.training.public_inputs import PublicRegions
    from epifed.training.release import read_release

    paying = Ledger(ledger) if ledger else None
    panel = reading.read(data)
    days = first.date() if first else None, last.date() if last else None
    releasable = None
    if paying:
        step = reading.options.get("cadence") or wish.said.get("step")
        releasable = _releasable(panel, days, regions, step)
        panel = releasable.panel
    elif regions:
        panel = PublicRegions.of(regions).lay_out(panel)
    chosen = wish.settings_of(panel)
    before = read_release(earlier) if earlier else None
    learns = make_learner(chosen)
    expected = expect(learns, PrivacyPlan.of(chosen, len(panel.regions)))
    if expected:
        messages.print(expected.sentence())
    with GridProgress() as progress:

        def watch(i: int, _: Any) -> None:
            progress(i, chosen.rounds)

        if paying and releasable:
            training = train_releasable(releasable, chosen, paying, earlier=before, watch=watch)
        else:
            period = panel.period(*days)
            view = learns.deployed_view(panel, period)
            training = run(view, chosen, earlier=before, period=period, watch=watch)
    release = training.release
    assert release is not None
    release.write(out)
    if as_json:
        print(
            to_json(
                {
                    "model": str(out),
                    "sha256": release.sha256,
                    "epsilon": release.epsilon,
                    "epsilon_without_amplification": release.epsilon_without_amplification,
                    "releases_inside": len(release.spent),
                    "delta": release.delta,
                    "accountant": release.accountant,
                    "randomness": release.randomness,
                    "ledger_run": release.ledger_run,
                    "expected_noise": expected.to_dict() if expected else None,
                }
            )
        )
    else:
        print(release.sentence())
        print(f"this training alone: {training.calibration.sentence()}")
        if paying and release.ledger_run:
            _tell_other_price(paying, release.ledger_run, release.accountant)
    messages.print(f"the release is in {out}")


def _releasable(
    panel: "CasePanel",
    days: "tuple[date | None, date | None]",
    regions: Path | None,
    step: str | None,
) -> "ReleasableData":
    """The cases on the given days and regions, with a note if these look wrong."""
    from epifed.training.public_inputs import ReleasableData

    data = ReleasableData.of(panel, *days, regions, step)
    if note := data.note():
        say_note(note)
    return data


def _tell_other_price(paying: "Ledger", run: str, accountant: str) -> None:
    """Say what the ledger counts for a training, where it counts by another accountant."""
    from epifed.ledger.budget import together
    from epifed.privacy.accounting import rounded_up

    book = paying.book()
    if book.cap.accountant == accountant:
        return
    paid = book.runs[run]
    price = book.cap.price(together([paid.part(paid.counted)]))
    print(
        f"the ledger counts by {book.cap.accountant.upper()}, by which the same training alone is "
        f"ε = {rounded_up(price)}: both are valid upper bounds for the same noise"
    )


@reads_cases
def pretrain(
    data: Annotated[
        list[Path],
        typer.Option(help="Public weekly series of many regions. Repeat for several files."),
    ],
    licence: Annotated[
        str, typer.Option(help="Where the series come from and their licence: kept in the file.")
    ],
    leave_out: Annotated[
        list[int] | None,
        typer.Option(help="A season to leave out, by the year of its August. Repeat for several."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("pretrained.json"),
    *,
    reading: Reading,
) -> None:
    """Fit a weekly forecaster on public data and write it as a small file.

    It is applied by each client to its own series, so it costs no privacy:
    'pretrained = "FILE"' in the settings. Counts and rates may be mixed: every region is scaled by
    its own past. Each file counts alike. Never give it data that is not public.
    """
    refuse_unwritable(out)

    from epifed.learners.pretrained import PublicSeries, fit_pretrained

    panels = [reading.read(path) for path in data]
    for path, panel in zip(data, panels, strict=True):
        if panel.step != "week":
            raise EpifedError(f"{path}: found counts of each day; expected counts of each week")
    largest = max(panel.counts.size for panel in panels)
    series = [
        PublicSeries(panel, largest / panel.counts.size, tuple(leave_out or ())) for panel in panels
    ]
    about = {
        "licence": licence,
        "left_out": list(leave_out or ()),
        "series": [
            {
                "file": path.name,
                "regions": len(panel.regions),
                "first": panel.start.isoformat(),
                "last": panel.end.isoformat(),
                "sha256": panel.digest(),
            }
            for path, panel in zip(data, panels, strict=True)
        ],
    }
    fit_pretrained(series, about).write(out)
    weeks = sum(panel.counts.size for panel in panels)
    messages.print(
        f"the forecaster is in {out}, from {weeks:,} weeks of regions; "
        "it was fitted on public data only and costs no privacy"
    )
