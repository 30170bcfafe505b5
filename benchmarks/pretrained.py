"""Fit the forecaster that the package ships, on public data only.

    python benchmarks/pretrained.py --data ../shared/data

It learns from visits for influenza-like illness (ILINet), influenza admissions (NHSN) and the share
of emergency visits with COVID-19 (NSSP), of US states by week. `hubs.py` fits it for each season it
reports on, from what was there before that season.
"""

import argparse
from datetime import date
from pathlib import Path

import polars as pl

import epifed
from epifed.data.panel import CasePanel
from epifed.learners.pretrained import SHIPPED, Pretrained, PublicSeries, fit_pretrained

NATION = "US"
LEFT_OUT = (2010, 2020)
"""Seasons of ILI that are left out: of 2010 only the end is there, in 2020 there was none."""
PER_HUNDRED_THOUSAND = 1e5
SHORT_WEIGHT = 3.0
"""What a week counts of the two series that are short."""
LICENCE = (
    "US CDC, ILINet: public domain; US CDC, NHSN, through the CDC FluSight Forecast Hub: CC BY "
    "4.0; US CDC, NSSP, through the CDC COVID-19 Forecast Hub: public domain"
)
FILE = Path(epifed.__file__).parent / "learners" / f"pretrained_{SHIPPED}.json"


def rates(rows: pl.DataFrame, share: pl.Expr) -> CasePanel:
    """A share of visits in the states, per 100,000, as weekly series."""
    states = rows.filter(pl.col("location") != NATION)
    share = (PER_HUNDRED_THOUSAND * share).alias("cases")
    return CasePanel.from_long(states.select(share, day="date", region="location"), step="week")


def public_series(data: Path, last: date) -> dict[str, PublicSeries]:
    """The public series up to a day."""
    ili = pl.read_parquet(data / "ili_history.parquet").filter(pl.col("total_patients") > 0)
    known = pl.read_parquet(data / "covid_vintages.parquet").filter(signal="ed_visits")
    known = known.filter(pl.col("as_of") == known["as_of"].max())
    admissions = epifed.load_panel(
        data / "flu_admissions.csv", region="location", cases="value", totals="drop"
    )
    every = {
        "ILI visits per 100,000 visits": (
            rates(ili, pl.col("ili_visits") / pl.col("total_patients")), 1.0, LEFT_OUT
        ),
        "influenza admissions": (admissions, SHORT_WEIGHT, ()),
        "emergency visits with COVID-19 per 100,000": (
            rates(known, pl.col("value")), SHORT_WEIGHT, ()
        ),
    }  # fmt: skip
    return {
        name: PublicSeries(panel.between(panel.start, min(last, panel.end)), weight, left_out)
        for name, (panel, weight, left_out) in every.items()
    }


def fitted(data: Path, last: date) -> Pretrained:
    """The forecaster that public data up to a day teach."""
    series = public_series(data, last)
    about = {
        "licence": LICENCE,
        "series": [
            {"name": name, "regions": len(of.panel.regions), "weight": of.weight,
             "first": of.panel.start.isoformat(), "last": of.panel.end.isoformat(),
             "left_out": list(of.leave_out), "sha256": of.panel.digest()}
            for name, of in series.items()
        ],
    }  # fmt: skip
    return fit_pretrained(list(series.values()), about)


def main() -> None:
    """Write the file of the package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    fitted(parser.parse_args().data, date.max).write(FILE)
    print(FILE, FILE.stat().st_size)


if __name__ == "__main__":
    main()
