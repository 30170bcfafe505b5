"""Files that once were read wrongly without a word: sums among regions, two spellings, two steps.

What is offered first must read them rightly, or nothing is offered and they are refused.
"""

import unicodedata
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epifed.data.readers import load_panel
from epifed.errors import EpifedError
from tests.data.test_reading_offices import (
    BY_WEEK,
    COUNTS,
    DAYS,
    REGIONS,
    WEEKS,
    following,
    is_true,
    plain,
    workbook,
)
from tests.small_tables import choices


def written(tmp_path: Path, lines: Sequence[str], encoding: str = "utf-8") -> Path:
    path = tmp_path / "cases.csv"
    path.write_bytes(("\n".join(lines) + "\n").encode(encoding))
    return path


def of(series: dict[str, Any]) -> list[str]:
    """A long table, region after region."""
    rows = [f"{d},{name},{n}" for name, counts in series.items()
            for d, n in zip(DAYS, counts, strict=True)]  # fmt: skip
    return ["date,region,cases", *rows]


A, B, C, D = COUNTS
NAMES = ("LK A", "LK B", "LK C", "LK D")
SUMS = {
    "below their parts": {
        "LK A": A, "LK B": B, "Bayern": A + B, "LK C": C, "LK D": D, "Hessen": C + D,
    },
    "above their parts": {
        "Bayern": A + B, "LK A": A, "LK B": B, "Hessen": C + D, "LK C": C, "LK D": D,
    },
    "on two levels": {
        "everything": A + B + C + D, "South": A + B, "LK A": A, "LK B": B, "North": C + D,
        "LK C": C, "LK D": D,
    },
    "of a pivot table": {
        "LK A": A, "LK B": B, "Bayern Ergebnis": A + B, "LK C": C, "Saarland Ergebnis": C,
        "LK D": D, "Berlin Ergebnis": D,
    },
    "of CDC": {"LK A": A, "Pacific": A, "LK B": B, "LK C": C, "LK D": D, "US Residents": A + B + C},
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_some_regions_are_totals(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, of(SUMS[name]))
    assert choices(path)[0] == {"totals": "drop"}
    panel, _ = following(path)
    assert panel.regions == NAMES
    np.testing.assert_array_equal(panel.counts, COUNTS)
    assert len(load_panel(path, totals="keep").regions) == len(SUMS[name])


def test_sums_among_columns_are_totals(tmp_path: Path) -> None:
    sums = {"date": DAYS, **SUMS["below their parts"]}
    lines = [",".join(sums), *(",".join(map(str, row)) for row in zip(*sums.values(), strict=True))]
    panel, said = following(written(tmp_path, lines))
    assert said == {"layout": "regions-across", "totals": "drop"}
    np.testing.assert_array_equal(panel.counts, COUNTS)


def test_sums_with_a_gap_in_their_parts_are_totals(tmp_path: Path) -> None:
    gap = ["" if i % 4 == 0 else str(n) for i, n in enumerate(A)]
    lines = of(SUMS["above their parts"] | {"LK A": gap})
    assert following(written(tmp_path, lines))[0].regions == NAMES


def test_levels_of_letters_and_digits_are_totals(tmp_path: Path) -> None:
    """NUTS, where a state of one county has the same counts as it."""
    nuts = {"DE": A + B + C + D, "DE1": A + B, "DE11": A, "DE12": B, "DE2": C, "DE21": C, "DE3": D,
            "DE31": D}  # fmt: skip
    panel, _ = following(written(tmp_path, of(nuts)))
    assert panel.regions == ("DE11", "DE12", "DE21", "DE31")
    np.testing.assert_array_equal(panel.counts, COUNTS)


def test_levels_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    sums = SUMS["on two levels"]
    mixed = {name: sums[name] for name in sorted(sums, key=lambda name: name[-1])}
    with pytest.raises(EpifedError, match=r"found everything, .* levels are mixed"):
        load_panel(written(tmp_path, of(mixed)), totals="drop")


def test_regions_alike_are_no_sums(tmp_path: Path) -> None:
    """Small numbers add up by chance."""
    few = np.random.default_rng(5).poisson(0.3, (60, 42))
    lines = of({f"{i:05d}": row for i, row in enumerate(few)})
    assert len(load_panel(written(tmp_path, lines)).regions) == 60


@pytest.mark.parametrize("groups", [3, 20])
def test_a_total_among_age_groups_is_not_summed_with_them(groups: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    lines = ["date,region,age,cases"]
    for row, region in enumerate(REGIONS):
        for column, d in enumerate(DAYS):
            shares = rng.multinomial(COUNTS[row, column], np.full(groups, 1 / groups))
            lines += [f"{d},{region},A{i:02d},{n}" for i, n in enumerate(shares)]
            lines.append(f"{d},{region},Total,{COUNTS[row, column]}")
    path = written(tmp_path, lines)
    is_true(following(path)[0], "day")
    asked = choices(path, duplicates="sum")
    assert asked[0] == {"totals": "drop"}
    is_true(load_panel(path, duplicates="sum", totals="drop"), "day")
    is_true(load_panel(path, **asked[1]), "day")
    assert load_panel(path, duplicates="sum", totals="keep").counts.sum() == 2 * COUNTS.sum()


def test_rows_that_a_column_of_many_words_tells_apart(tmp_path: Path) -> None:
    """Counties of one name in many states."""
    lines = ["date,county,state,cases"]
    lines += [f"{d},Washington,S{i:02d},{4 + i % 3}" for d in DAYS for i in range(30)]
    with pytest.raises(EpifedError, match=r"told apart by state \(30 of them\)"):
        load_panel(written(tmp_path, lines), region="county")


SPELLINGS = {
    "a mark": lambda line: "\ufeff" + line,
    "an unseen space": lambda line: line.replace("Bad Düren", "Bad Düren\u200b"),
    "two spaces": lambda line: line.replace("Bad Düren", "Bad  Düren"),
    "another space": lambda line: line.replace("Bad Düren", "Bad\u00a0Düren"),
    "letters in parts": lambda line: unicodedata.normalize("NFD", line),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_region_is_one_whatever_is_not_seen(name: str, tmp_path: Path) -> None:
    lines = [line.replace("01001", "Bad Düren") for line in plain()]
    lines[1:] = [",".join(line.split(",")[i] for i in (1, 0, 2)) for line in lines[1:]]
    lines[0] = "region,date,cases"
    half = [*lines[:80], *map(SPELLINGS[name], lines[80:])]
    panel = load_panel(written(tmp_path, half))
    assert panel.regions == ("01002", "09162", "11000", "Bad Düren")
    np.testing.assert_array_equal(panel.counts, COUNTS[[1, 2, 3, 0]])


def test_two_files_one_below_the_other(tmp_path: Path) -> None:
    lines = plain()
    is_true(load_panel(written(tmp_path, [*lines[:81], "\ufeff" + lines[0], *lines[81:]])), "day")


def test_a_region_in_capitals_from_a_day_on_is_refused(tmp_path: Path) -> None:
    lines = [line.replace("01001", "Berlin") for line in plain()]
    half = [*lines[:80], *(line.replace("Berlin", "BERLIN") for line in lines[80:])]
    with pytest.raises(EpifedError, match="found 'Berlin' and 'BERLIN', and no day that has both"):
        load_panel(written(tmp_path, half))
    both = [*lines, *(f"{d},BERLIN,3" for d in DAYS)]
    assert len(load_panel(written(tmp_path, both)).regions) == 5


def test_ids_that_lost_zeros_beside_a_word_or_in_part(tmp_path: Path) -> None:
    short = [line.replace(",0", ",", 1) for line in plain()]
    unknown = [f"{d},unbekannt,3" for d in DAYS]
    assert choices(written(tmp_path, [*short, *unknown]))[0] == {"id_width": 5}
    decimal = [line.replace("01001", "1001.0").replace("01002", "1002.0") for line in plain()]
    path = written(tmp_path, [*decimal, *unknown])
    assert following(path)[0].regions == (*REGIONS, "unbekannt")
    two = [line.replace("01001", "01").replace("01002", "02") for line in plain()]
    half = [*two[:80], *(line.replace(",01,", ",1,").replace(",02,", ",2,") for line in two[80:])]
    panel, said = following(written(tmp_path, half))
    assert (panel.regions, said) == (("01", "02", "09162", "11000"), {"id_width": 2})
    np.testing.assert_array_equal(panel.counts, COUNTS)


def test_days_and_then_weeks_are_refused(tmp_path: Path) -> None:
    later = [DAYS[-1] + timedelta(days=7 * week) for week in range(1, 6)]
    weekly = [f"{d},{region},{300 + row}" for d in later for row, region in enumerate(REGIONS)]
    path = written(tmp_path, [*plain(), *weekly])
    with pytest.raises(EpifedError, match=f"a week apart from {DAYS[-1]} on, and others that are"):
        load_panel(path)
    assert load_panel(path, cadence="day").step == "day"
    one = [f"{DAYS[6] + timedelta(days=7 * week)},weekly,{30 + week}" for week in range(9)]
    with pytest.raises(EpifedError, match=f"of region weekly that are a week apart from {DAYS[6]}"):
        load_panel(written(tmp_path, [*plain(), *one]))


@pytest.mark.parametrize(
    ("days", "said"),
    [
        ([date(2018 + i // 4, 1 + 3 * (i % 4), 1) for i in range(12)], "three months"),
        ([date(2010 + i, 12, 31) for i in range(8)], "a year"),
        ([date(2020, 1, 1) + timedelta(days=10 * i) for i in range(20)], "10 days"),
        ([date(2020, 1, 1) + timedelta(days=2 * i) for i in range(20)], "2 days"),
        ([d for d in DAYS if d.weekday() in (0, 3)], "3.5 days"),
    ],
)
def test_other_steps_are_refused(days: list[date], said: str, tmp_path: Path) -> None:
    days = [*days, *(d + timedelta(days=42) for d in days)] if said == "3.5 days" else days
    rows = [f"{d},{region},{9 + 7 * i % 13}" for i, d in enumerate(days) for region in REGIONS]
    with pytest.raises(EpifedError, match=f"found days about {said} apart"):
        load_panel(written(tmp_path, ["date,region,cases", *rows]))


@pytest.mark.parametrize(
    "form", ["{0:02d}/{1:02d}/{2}", "{0:02d}.{1:02d}.{2}", "{2}-{1:02d}-{0:02d}"]
)
def test_days_and_months_that_a_spreadsheet_swapped_are_refused(form: str, tmp_path: Path) -> None:
    def said(d: date) -> str:
        day, month = (d.day, d.month) if d.day > 12 else (d.month, d.day)
        return form.format(day, month, d.year)

    rows = [f"{said(d)};{r};{COUNTS[y, x]}" for y, r in enumerate(REGIONS)
            for x, d in enumerate(DAYS)]  # fmt: skip
    with pytest.raises(EpifedError, match="day and month seem to be swapped in some rows"):
        load_panel(written(tmp_path, ["date;region;cases", *rows]))


def test_a_region_under_two_names_is_said(tmp_path: Path) -> None:
    again = [f"{d},LK Flensburg,{n}" for d, n in zip(DAYS, COUNTS[0], strict=True)]
    notes = load_panel(written(tmp_path, [*plain(), *again])).notes
    assert "regions with the same counts on every day: 01001, LK Flensburg" in notes


def test_months_are_no_weeks(tmp_path: Path) -> None:
    months = [f"{year}-{month:02d}" for year in (2019, 2020) for month in range(1, 13)]
    rows = [f"{m},{region},{9 + 7 * i % 13}" for i, m in enumerate(months) for region in REGIONS]
    with pytest.raises(EpifedError, match="found months such as '2019-01'"):
        load_panel(written(tmp_path, ["date,region,cases", *rows]))


def test_accumulated_counts_that_start_anew_with_the_year(tmp_path: Path) -> None:
    """Weeks belong to the year of their middle: that of 2021-01-02 to the old one."""
    weeks = [date(2020, 10, 10) + timedelta(days=7 * week) for week in range(30)]
    new = np.random.default_rng(1).poisson([[8], [200], [30]], (3, 30))
    old = np.array([day <= date(2021, 1, 2) for day in weeks])
    so_far = np.concatenate([new[:, old].cumsum(axis=1), new[:, ~old].cumsum(axis=1)], axis=1)
    rows = [f"{d},{r},{so_far[y, x]}" for y, r in enumerate("abc") for x, d in enumerate(weeks)]
    path = written(tmp_path, ["date,region,cases", *rows])
    assert choices(path)[0] == {"counts": "cumulative-yearly"}
    assert choices(path, counts="cumulative") == ({"counts": "cumulative-yearly"},)
    panel = load_panel(path, counts="cumulative-yearly")
    np.testing.assert_array_equal(panel.counts, new[:, 1:])


@pytest.mark.parametrize("name", ["incidence", "cases_per_100k", "rate"])
def test_a_rate_is_not_offered_as_a_count(name: str, tmp_path: Path) -> None:
    lines = [line if i else f"date,region,{name}" for i, line in enumerate(plain())]
    with pytest.raises(EpifedError) as refused:
        load_panel(written(tmp_path, lines))
    assert f"--column-cases {name}" not in str(refused.value)


def test_a_day_over_two_columns_is_refused(tmp_path: Path) -> None:
    def fill(book: Any, sheet: Any) -> None:
        day = book.add_format({"num_format": "dd.mm.yyyy"})
        sheet.write_column(0, 0, ["Landkreis", "Landkreis", *REGIONS])
        for i, d in enumerate(DAYS):
            sheet.merge_range(0, 1 + 2 * i, 0, 2 + 2 * i, "")
            sheet.write_datetime(0, 1 + 2 * i, datetime(d.year, d.month, d.day), day)
            sheet.write_column(1, 1 + 2 * i, ["Todesfälle", *map(int, COUNTS[:, i] // 50)])
            sheet.write_column(1, 2 + 2 * i, ["Fälle", *map(int, COUNTS[:, i])])

    path = workbook(tmp_path / "cases.xlsx", fill)
    with pytest.raises(EpifedError, match="column 3: found no name beside a day"):
        load_panel(path, region="Landkreis")


def test_empty_regions_of_which_the_one_above_has_the_day_are_not_merged(tmp_path: Path) -> None:
    lines = [line.replace(",11000,", ",,") for line in plain()]
    with pytest.raises(EpifedError, match="found an empty cell; expected the id of a region"):
        load_panel(written(tmp_path, lines))


LANGUAGES = {
    "French": ({10: "octobre", 11: "nov."}, "{0.day} {1} {0.year}"),
    "Spanish": ({10: "octubre", 11: "noviembre"}, "{0.day} de {1} de {0.year}"),
    "Polish": ({10: "października", 11: "listopada"}, "{0.day} {1} {0.year}"),
    "Italian": ({10: "ottobre", 11: "novembre"}, "{0.day} {1} {0.year}"),
}


@pytest.mark.parametrize("name", LANGUAGES)
def test_months_of_other_languages(name: str, tmp_path: Path) -> None:
    months, form = LANGUAGES[name]
    rows = [f"{form.format(d, months[d.month])};{region};{COUNTS[y, x]}"
            for y, region in enumerate(REGIONS) for x, d in enumerate(DAYS)]  # fmt: skip
    is_true(following(written(tmp_path, ["date;region;cases", *rows]))[0], "day")


def test_a_query_of_survstat_with_counties_across(tmp_path: Path) -> None:
    lines = ['"Meldewoche"\t' + "\t".join(f'"{region}"' for region in REGIONS)]
    lines += [f'"{year}-KW{week}"\t' + "\t".join(f'"{n}"' for n in BY_WEEK[:, i])
              for i, (year, week) in enumerate(WEEKS)]  # fmt: skip
    panel, said = following(written(tmp_path, lines, "utf-16"))
    is_true(panel, "week")
    assert said == {"date": "Meldewoche", "layout": "regions-across"}


def test_a_table_of_cdc_with_two_diseases_and_years_beside_weeks(tmp_path: Path) -> None:
    states = ("Alaska", "Maine", "Oregon", "Vermont")
    lines = ["Reporting Area,Current MMWR Year,MMWR WEEK,Label,Current week,YTD Previous MMWR Year"]
    lines += [
        f"{name},2020,{41 + week},{label},{BY_WEEK[row, week] // share},9"
        for label, share in (("Mumps", 1), ("Pertussis", 3))
        for week in range(6)
        for row, name in enumerate(states)
    ]
    panel, said = following(written(tmp_path, lines))
    np.testing.assert_array_equal(panel.counts, BY_WEEK)
    assert said["date"] == "Current MMWR Year+MMWR WEEK"
    assert (said["date_format"], said["only"]) == ("epiweek", "Label=Mumps")
    assert panel.end == date(2020, 11, 14)
