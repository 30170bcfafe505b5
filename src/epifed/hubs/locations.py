"""How a hub calls regions: its own code for each, and what kind of region it is."""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from epifed.errors import EpifedError
from epifed.hubs.tables import read_table


@dataclass(frozen=True)
class Locations:
    """A hub's codes of regions; without any, a region is called by its own id."""

    codes: dict[str, str] = field(default_factory=dict)
    """The hub's code of each region."""
    levels: dict[str, str] = field(default_factory=dict)
    """The level of each code: state, nation."""

    @property
    def regions(self) -> dict[str, str]:
        """The region of each code."""
        return {code: region for region, code in self.codes.items()}

    def code(self, region: str, allowed: Collection[str] = ()) -> str:
        """The hub's code of a region: of the table, or its own id if the hub allows it as a code.

        One that the table lacks is refused.
        """
        if not self.codes or (region not in self.codes and region in allowed):
            return region
        if region not in self.codes:
            raise EpifedError(
                f"--locations: found no location of region '{region}'; expected one for each "
                "region that is forecast"
            )
        return self.codes[region]


def read_locations(path: Path | None) -> Locations:
    """The table of locations: columns location, region, and level if it is known."""
    if path is None:
        return Locations()
    table = read_table(path)
    if missing := [name for name in ("location", "region") if name not in table.columns]:
        raise EpifedError(
            f"{path}: found no column {missing[0]}; expected location, region, and perhaps level"
        )
    for name in ("location", "region"):
        if table[name].is_duplicated().any() or table[name].null_count():
            raise EpifedError(
                f"{path}: column {name}: found one empty or twice; expected each once"
            )
    codes = dict(table.select("region", "location").iter_rows())
    levels = {}
    if "level" in table.columns:
        levels = dict(table.select("location", "level").drop_nulls().iter_rows())
    return Locations(codes, levels)
