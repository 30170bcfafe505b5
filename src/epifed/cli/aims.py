"""The options that say what is forecast beside each region itself, and for which hub."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import date
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from epifed.cli.kit import refuse_unwritable
from epifed.errors import EpifedError
from epifed.words import counted

if TYPE_CHECKING:
    from epifed.forecasting import Forecast
    from epifed.hubs.config import Calendar
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
    published: Annotated[
        Path | None,
        _option(
            "Published counts of states or the nation, public already (date, location, value), "
            "for their forecasts instead of sums of the clients' own."
        ),
    ] = None
    published_lead: Annotated[
        int,
        _option(
            "Days by which they are known further than the clients' counts: 1 if they are "
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

        for option, name in (
            ("--week-ends", self.week_ends),
            ("--reference-day", self.reference_day),
        ):
            if name is not None:
                to_weekday(name, option)
        if self.published is not None and not self.level:
            raise EpifedError("found --published; expected --level with it")
        if self.published is None and self.published_lead:
            raise EpifedError("found --published-lead; expected --published with it")
        if self.published is None and self.hub is None and self.locations is not None:
            raise EpifedError("found --locations; expected --hub or --published with it")
        if self.hub is None and (self.target is not None or self.model_name != MODEL_NAME):
            raise EpifedError("found --target or --model-name; expected --hub with it")
        if self.hub:
            refuse_unwritable(self.hub)
            weeks = self.week_ends or self.reference_day or self.ahead or self._calendar
            refuse_for_hub(self.model_name, [] if weeks else horizons)

    @cached_property
    def _calendar(self) -> "Calendar | None":
        """How the hub counts weeks, if it says so itself."""
        from epifed.hubs.config import form_of

        return form_of(self.hub, self.target).calendar if self.hub else None

    def targets(
        self, panel: "CasePanel", horizons: Sequence[int], origins: Sequence[date]
    ) -> "Targets | None":
        """What is asked for beside each region's own forecast; none if nothing is.

        What the hub would not take of it is refused here, before it is computed.
        """
        from epifed.hubs.layout import refuse_tasks
        from epifed.hubs.locations import read_locations
        from epifed.hubs.tables import read_truth
        from epifed.levels import levels_of
        from epifed.targets import Targets, Totals

        places = read_locations(self.locations)
        totals = None
        if self.published is not None:
            every = levels_of(panel).values()
            known = places.regions or {name: name for one in every for name in one.regions}
            totals = Totals.of(panel, read_truth(self.published), known, self.published_lead)
        hub = self._calendar
        found = Targets.of(
            panel,
            horizons,
            self.level or (),
            week_ends=self.week_ends or (hub.week_ends if hub else None),
            reference_day=self.reference_day or (hub.reference_day if hub else None),
            ahead=self.ahead or (hub.ahead if hub else ()),
            totals=totals,
        )
        if found is not None and hub is not None and not self.ahead:
            found = found.within_reach(origins, panel.step)
        if found is not None and self.hub is not None:
            blank = found.blank(origins, panel.step)
            refuse_tasks(blank, self.hub, locations=places, target=self.target)
        return found

    def write(self, forecasts: "Sequence[Forecast]") -> str:
        """Add the forecasts to the hub, if one was named; what was done ends a sentence."""
        from epifed.hubs.layout import write_hub
        from epifed.hubs.locations import read_locations

        if not self.hub:
            return ""
        codes = read_locations(self.locations)
        files = write_hub(forecasts, self.hub, self.model_name, locations=codes, target=self.target)
        rounds = len({one.reference or one.origin for one in forecasts})
        left_out = f" ({rounds - len(files)} of them left out, which the hub has no round of)"
        return (
            f", hub files of {counted(rounds, 'reference date')} in {self.hub}"
            f"{left_out if rounds > len(files) else ''}"
        )


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
