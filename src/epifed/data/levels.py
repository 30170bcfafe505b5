"""Levels: the larger regions that a panel's regions belong to, up to the nation.

Forecasts of all levels fit together: a larger region's point forecast is the sum of its parts',
and its quantiles are as wide as the past errors of that sum, since sums of quantiles are none.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from epifed.data.panel import CasePanel
from epifed.errors import EpifedError

Floats = NDArray[np.float64]

NATION = "nation"


@dataclass(frozen=True)
class Level:
    """Some regions, each a sum of regions of a panel."""

    name: str
    """What they are: county, state, nation."""
    regions: tuple[str, ...]
    names: tuple[str, ...]
    members: NDArray[np.bool_]
    """[regions, regions of the panel]"""

    def sum(self, values: Floats) -> Floats:
        """Sums over the members, of values [regions of the panel, ...]."""
        total: Floats = self.members.astype(np.float64) @ values
        return total

    def only(self, rows: Sequence[int]) -> "Level":
        """Some of the regions only."""
        return replace(
            self,
            regions=tuple(self.regions[row] for row in rows),
            names=tuple(self.names[row] for row in rows),
            members=self.members[list(rows)],
        )

    def panel(self, parts: CasePanel) -> CasePanel:
        """The panel of these regions: counts and inhabitants added up, places in the middle.

        A sum counts as reported if all of its parts are.
        """
        people = parts.population
        weight = self.members * (1.0 if people is None else people.astype(np.float64))
        weight /= weight.sum(axis=1, keepdims=True)
        positions = parts.positions
        missing = None if parts.reported is None else (~parts.reported).astype(np.float64)
        return CasePanel(
            self.sum(parts.counts),
            self.regions,
            parts.start,
            names=self.names,
            population=None if people is None else self.members @ people,
            reported=None if missing is None else self.sum(missing) == 0,
            typical_population=None if people is None else np.exp(weight @ np.log(people)),
            states=_common(parts.states, self.members),
            calendars=_common(parts.calendars, self.members),
            positions=None if positions is None else weight @ positions,
            source=parts.source,
            attribution=parts.attribution,
            notes=parts.notes,
            simulated=parts.simulated,
            step=parts.step,
        )


def levels_of(panel: CasePanel) -> dict[str, Level]:
    """Every level of a panel by its name, from its own regions to the nation."""
    own = "community" if panel.parents else "county" if panel.states else "region"
    found = {own: Level(own, panel.regions, panel.names, np.eye(len(panel.regions), dtype=bool))}
    for name, belonging in (("county", panel.parents), ("state", panel.states)):
        if belonging:
            regions = tuple(sorted(set(belonging)))
            members = np.array(regions)[:, None] == np.array(belonging)[None, :]
            found[name] = Level(name, regions, regions, members)
    every = np.ones((1, len(panel.regions)), dtype=bool)
    return found | {NATION: Level(NATION, (NATION,), (NATION,), every)}


def choose(panel: CasePanel, wanted: Sequence[str]) -> tuple[Level, ...]:
    """The levels that were asked for: a level's name, or the id or name of a region of any.

    >>> from datetime import date
    >>> panel = CasePanel(np.ones((2, 3)), ("01001", "01002"), date(2020, 1, 2), states=("A", "A"))
    >>> [(level.name, level.regions) for level in choose(panel, ["nation", "A", "01002"])]
    [('nation', ('nation',)), ('state', ('A',)), ('county', ('01002',))]
    """
    every = levels_of(panel)
    rows: dict[str, list[int]] = {}
    for one in wanted:
        level, inside = _found(every, one)
        rows[level] = sorted({*rows.get(level, []), *inside})
    return tuple(every[name].only(inside) for name, inside in rows.items())


def _found(every: dict[str, Level], wanted: str) -> tuple[str, Sequence[int]]:
    if wanted in every:
        return wanted, range(len(every[wanted].regions))
    for level in every.values():
        for known in (level.regions, level.names):
            if known.count(wanted) == 1:
                return level.name, [known.index(wanted)]
    raise EpifedError(
        f"--level: found '{wanted}'; expected {', '.join(every)}, or the id or name of one region"
    )


def _common(values: tuple[str, ...], members: NDArray[np.bool_]) -> tuple[str, ...]:
    """What all members of each sum have in common; else nothing."""
    if not values:
        return ()
    inside = [{values[i] for i in np.flatnonzero(row)} for row in members]
    return tuple(min(one) if len(one) == 1 else "" for one in inside)
