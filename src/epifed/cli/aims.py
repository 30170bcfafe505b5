"""The options that say what is forecast beside each region itself, and for which hub."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from epifed.cli.kit import refuse_unwritable
from epifed.errors import EpifedError

if TYPE_CHECKING:
    from epifed.forecasting import Forecast
    from epifed.panel import CasePanel
    from epifed.targets import Targets

MODEL_NAME = "epifed-trend"
_PANEL = "Larger regions and hubs"


def _option(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL, **more)


@dataclass(frozen=True)
class Aims:
    """What was said of levels, weeks and hubs."""

    level: Annotated[
        list[str] | None,
        _option(
            "Also forecast this level: county, state, nation; or one region of any, by id or "
            "name. Repeat for several. 'community' reads a prepared directory's communities."
        ),
    ] = None
    totals: Annotated[
        Path | None,
        _option(
            "Published counts of states or the nation, public already (date, location, value), "
            "for their forecasts instead of sums of the clients' own."
        ),
    ] = None
    totals_lead: Annotated[
        int,
        _option(
            "Days by which the totals are known further than the clients' counts: 1 if they are "
            "dated by publication.",
            min=0,
            max=14,
        ),
    ] = 0
    week_ends: Annotated[
        str | None,
        _option(
            "Forecast weeks that end on this weekday: saturday (Sunday to Saturday), sunday.",
            show_default="any week",
        ),
    ] = None
    reference_day: Annotated[
        str | None,
        _option(
            "The weekday that the hub dates forecasts with.",
            show_default="the morning of the forecast",
        ),
    ] = None
    ahead: Annotated[
        list[int] | None,
        _option(
            "Weeks ahead, with --week-ends: 0 ends by the reference day. Repeat for several.",
            min=0,
            max=4,
            show_default="1",
        ),
    ] = None
    hub: Annotated[Path | None, _option("Also write the forecasts into this hubverse folder.")] = (
        None
    )
    model_name: Annotated[str, _option("team-model in the hub.")] = MODEL_NAME
    locations: Annotated[
        Path | None, _option("The hub's code of each region: a table of location and region.")
    ] = None
    target: Annotated[
        str | None,
        _option("The hub's target, where it has several.", show_default="wk inc case"),
    ] = None

    def reading(self) -> dict[str, str]:
        """How a prepared directory is to be read: at the smallest level that is named."""
        return {"level": "community"} if "community" in (self.level or []) else {}

    def refuse_early(self, horizons: Sequence[int]) -> None:
        """Refuse what cannot be, before anything is computed."""
        from epifed.hubs.layout import refuse_for_hub
        from epifed.weeks import to_weekday

        if self.week_ends is None and (self.ahead or self.reference_day):
            raise EpifedError("found --ahead or --reference-day; expected --week-ends with it")
        for option, name in (
            ("--week-ends", self.week_ends),
            ("--reference-day", self.reference_day),
        ):
            if name is not None:
                to_weekday(name, option)
        if self.totals is not None and not self.level:
            raise EpifedError("found --totals; expected --level with it")
        if self.totals is None and self.totals_lead:
            raise EpifedError("found --totals-lead; expected --totals with it")
        if self.totals is None and self.hub is None and self.locations is not None:
            raise EpifedError("found --locations; expected --hub or --totals with it")
        if self.hub is None and (self.target is not None or self.model_name != MODEL_NAME):
            raise EpifedError("found --target or --model-name; expected --hub with it")
        if self.hub:
            refuse_unwritable(self.hub)
            refuse_for_hub(self.model_name, [] if self.week_ends else horizons)

    def targets(self, panel: "CasePanel", horizons: Sequence[int]) -> "Targets | None":
        """What is asked for beside each region's own forecast; none if nothing is."""
        from epifed.hubs.locations import read_locations
        from epifed.hubs.tables import read_truth
        from epifed.levels import choose, levels_of
        from epifed.targets import Targets, Totals
        from epifed.weeks import Weeks, to_weekday

        every = levels_of(panel)
        own = next(iter(every))
        plain = set(self.level or [own]) == {own} and self.totals is None
        if self.week_ends is None and plain:
            return None
        weeks = None
        if self.week_ends is not None or self.totals is not None:
            panel.refuse_step("day")
        if self.week_ends is not None:
            day = self.reference_day
            reference = None if day is None else to_weekday(day, "--reference-day")
            weeks = Weeks(to_weekday(self.week_ends, "--week-ends"), reference)
        published = None
        if self.totals is not None:
            places = read_locations(self.locations).regions
            places = places or {name: name for one in every.values() for name in one.regions}
            published = Totals.of(panel, read_truth(self.totals), places, self.totals_lead)
        steps = (self.ahead or [1]) if weeks else horizons
        levels = choose(panel, self.level or [own])
        found = Targets(levels, tuple(sorted(set(steps))), weeks, published)
        if published is not None and not any(map(found.totals_of, levels)):
            raise EpifedError(
                f"--totals: found counts of the level '{published.level.name}'; expected a --level "
                "that is forecast from them"
            )
        return found

    def write(self, forecasts: "Sequence[Forecast]") -> None:
        """Add the forecasts to the hub, if one was named."""
        from epifed.hubs.layout import write_hub
        from epifed.hubs.locations import read_locations

        if self.hub:
            codes = read_locations(self.locations)
            write_hub(forecasts, self.hub, self.model_name, locations=codes, target=self.target)

    def where(self) -> str:
        """Where the hub's files are, as the end of a sentence."""
        return f", hub files in {self.hub}" if self.hub else ""


def aims_at_levels(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `Aims`, which it gets as its argument `aims`."""
    kinds = get_type_hints(Aims, include_extras=True)
    added = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=one.default,
            annotation=kinds[one.name],
        )
        for one in fields(Aims)
    ]
    own = inspect.signature(command).parameters
    every = [p for name, p in own.items() if name != "aims"] + added

    @wraps(command)
    def with_options(**values: Any) -> None:
        said = {one.name: values.pop(one.name) for one in added}
        command(**values, aims=Aims(**said))

    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in every]
    with_options.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in every}
    return with_options
