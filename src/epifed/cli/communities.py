"""`epifed data communities`: the paper's community data, drawn at random from counties."""

from pathlib import Path
from typing import Annotated

import typer

from epifed.cli.kit import AsJson, messages, print_table, refuse_unwritable
from epifed.errors import EpifedError
from epifed.files import to_json
from epifed.settings import PERIODS, Settings, Smoothing
from epifed.words import counted

COPIED = ("county_cases.parquet", "counties.csv", "communities.csv", "counties.geojson",
          "communities.geojson", "ATTRIBUTION.txt")  # fmt: skip


def communities(
    data: Annotated[Path, typer.Option(help="Prepared or simulated directory with counties.")],
    out: Annotated[Path, typer.Option(help="New directory: the same, with these communities.")],
    seed: Annotated[int, typer.Option(min=0, help="Root of the random draw.")] = 0,
    smoothing: Annotated[
        str, typer.Option(help="none, or a 7-day average: centered (the paper) or trailing.")
    ] = "none",
    as_json: AsJson = False,
) -> None:
    """Draw each county's cases into its communities at random, by share of population.

    This is what the paper did for want of real data: it sums to the county on every day, and it
    loses all infection chains. Prints how many of a sample's values are zero in the paper's
    periods, and draws the paper's figure of it.
    """
    import shutil

    import numpy as np
    import polars as pl

    from epifed.communities import disaggregate, zero_entries
    from epifed.files import write_parquet
    from epifed.report import figures
    from epifed.seeds import seed_sequence
    from epifed.sources import read_communities, read_prepared
    from epifed.windows import smooth

    refuse_unwritable(out)
    if out.exists() and any(out.iterdir()):
        raise EpifedError(f"{out}: found a directory with files in it; expected a new or empty one")
    how: Smoothing = Settings.of(smoothing=smoothing).smoothing
    rng = np.random.default_rng(seed_sequence(seed, "communities"))
    panel = disaggregate(read_prepared(data), read_communities(data), rng)
    frame = pl.DataFrame(
        {
            "date": pl.Series(panel.days * len(panel.regions)),
            "community": np.repeat(np.array(panel.regions, dtype=object), len(panel.days)),
            "cases": smooth(panel.counts, how).ravel(),
        },
        schema_overrides={"community": pl.String},
    )
    whole = pl.col("cases").cast(pl.Int32) if how == "none" else pl.col("cases")
    write_parquet(out / "community_cases.parquet", frame.with_columns(whole))
    for name in COPIED:
        if (data / name).is_file():
            shutil.copyfile(data / name, out / name)
    settings = Settings.paper(smoothing=how)
    covered = {
        period: zero_entries(panel, settings, days)
        for period, days in PERIODS.items()
        if panel.start <= days[0] and days[1] <= panel.end
    }
    if covered:
        figures.save(figures.zero_entries(covered), out / "zero_entries.png")
    if as_json:
        print(to_json({period: table.to_dicts() for period, table in covered.items()}))
    for period, table in covered.items() if not as_json else ():
        rows = [
            [str(row["zeros"]), f"{row['samples']:,}", f"{row['share']:.1%}",
             "–" if row["population_median"] is None else f"{row['population_median']:,.0f}"]
            for row in table.iter_rows(named=True)
        ]  # fmt: skip
        header = ["zeros of 11", "samples", "share", "median population"]
        print_table(f"{period}: zero values per sample", header, rows, f"smoothing: {how}")
    messages.print(f"{out} has {counted(len(panel.regions), 'community')}")
