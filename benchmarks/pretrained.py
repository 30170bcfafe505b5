"""Fit the forecaster that the package ships, on public data only.

    python benchmarks/pretrained.py --data ../shared/data

It learns from visits for influenza-like illness (ILINet, without the seasons of the pandemic) and
from influenza admissions up to September 2023: nothing of the seasons that `hubs.py` reports on.
"""

import argparse
from datetime import date
from pathlib import Path

import polars as pl

import epifed
from epifed.data.panel import CasePanel
from epifed.learners.pretrained import PublicSeries, fit_pretrained

NATION = "US"
PANDEMIC = (2010, 2019, 2020, 2021)
"""Seasons that are left out; of 2010 only the end is there."""
LAST = date(2023, 9, 23)
PER_HUNDRED_THOUSAND = 1e5
ADMISSIONS_WEIGHT = 3.0
LICENCE = (
    "US CDC, ILINet: public domain; US CDC, NHSN, through the CDC FluSight Forecast Hub: CC BY 4.0"
)
SHIPPED = Path(epifed.__file__).parent / "learners" / "pretrained_influenza.json"


def visits(data: Path) -> CasePanel:
    """Visits for influenza-like illness per 100,000 visits, by state and week."""
    table = pl.read_parquet(data / "ili_history.parquet").filter(
        pl.col("location") != NATION, pl.col("total_patients") > 0
    )
    rate = PER_HUNDRED_THOUSAND * pl.col("ili_visits") / pl.col("total_patients")
    rows = table.select(day="date", region="location", cases=rate)
    return CasePanel.from_long(rows, step="week")


def admissions(data: Path) -> CasePanel:
    """Influenza admissions by state and week, up to the season that is tested."""
    panel = epifed.load_panel(
        data / "flu_admissions.csv", region="location", cases="value", totals="drop"
    )
    return panel.between(panel.start, LAST)


def main() -> None:
    """Write the file of the package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    series = {
        "ILI visits per 100,000 visits, 2010-10 to 2023-09": PublicSeries(
            visits(data), 1.0, PANDEMIC
        ),
        "influenza admissions, 2022-02 to 2023-09": PublicSeries(
            admissions(data), ADMISSIONS_WEIGHT
        ),
    }
    about = {
        "licence": LICENCE,
        "left_out": list(PANDEMIC),
        "series": [
            {"name": name, "regions": len(one.panel.regions), "weight": one.weight,
             "sha256": one.panel.digest()}
            for name, one in series.items()
        ],
    }  # fmt: skip
    fit_pretrained(list(series.values()), about).write(SHIPPED)
    print(SHIPPED, SHIPPED.stat().st_size)


if __name__ == "__main__":
    main()
