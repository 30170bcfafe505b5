"""How complete the days of a case list are by their age, for `epifed data check`."""

from typing import TYPE_CHECKING, Any

from epifed.cli.kit import print_table
from epifed.words import counted

if TYPE_CHECKING:
    from epifed.vintages import Vintages

LAGS = 8
_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def describe(known: "Vintages") -> dict[str, Any]:
    """The mornings of a list and its completeness by lag and weekday, ready for JSON."""
    return {
        "first_morning": known.first,
        "last_morning": known.last,
        "mornings": len(known.snapshots),
        "missing_mornings": list(known.missing),
        "completeness": known.completeness(LAGS).to_dicts(),
        "notes": list(known.notes),
    }


def print_completeness(known: "Vintages") -> None:
    """A row for all reporting dates and one for each weekday, a column for each lag."""
    shares = {
        (row["weekday"], row["lag"]): row["share"]
        for row in known.completeness(LAGS).iter_rows(named=True)
    }
    rows = [
        [name, *(_percent(shares.get((weekday, lag))) for lag in range(LAGS))]
        for weekday, name in ((None, "all"), *enumerate(_NAMES))
    ]
    gaps = ", ".join(map(str, known.missing)) or "none"
    caption = (
        f"{counted(len(known.snapshots), 'morning')} from {known.first} to {known.last}, missing: "
        f"{gaps}. "
        "Known / known now, by weekday of the reporting date and mornings since the first that "
        "could know it."
    )
    print_table("How complete days are", ["", *map(str, range(LAGS))], rows, caption)
    for note in known.notes:
        print(f"  {note}")


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
