"""`epifed data convert`: the clean table of a file, and a record of every assumption behind it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epifed.cli.kit import refuse_unwritable_file
from epifed.cli.source import Reading, reads_cases
from epifed.errors import EpifedError
from epifed.files import to_json, write_parquet, write_text
from epifed.words import counted

if TYPE_CHECKING:
    import polars as pl


_KEPT = {"cadence": ("day", "week"), "counts": ("new",), "totals": ("keep",), "id_width": (0,)}
"""What a clean table does not say by itself either: the option is needed to read it, too."""


@reads_cases
def convert(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Any file that 'data check' reads, or -.")
    ],
    out: Annotated[Path, typer.Option(help="The file to write, .csv or .parquet.")],
    by_publication: Annotated[
        bool,
        typer.Option(
            "--by-publication",
            help="FILE says what became known when: count by that day, which is never incomplete.",
        ),
    ] = False,
    *,
    reading: Reading,
) -> None:
    """Write the clean table of a file: date, region, cases, and a record of every assumption.

    The record is OUT.json: what was recognised, what was said, what was changed and how often.
    """
    from importlib.metadata import version

    from epifed.reading import in_words
    from epifed.sources import load_panel, load_table
    from epifed.sources.content import source_digest
    from epifed.sources.vintages import load_vintages

    if out.suffix.lower() not in {".csv", ".parquet"}:
        raise EpifedError(f"{out}: expected a name that ends in .csv or .parquet")
    if by_publication and reading.options:
        said = ", ".join(reading.options)
        raise EpifedError(f"--by-publication: found {said} beside it; expected none of these")
    refuse_unwritable_file(out)
    if out.exists() and file.exists() and out.samefile(file):
        raise EpifedError(f"{out}: found the source itself; expected another name")
    table = None if by_publication else load_table(file, reading.format, **reading.options)
    if table is None:
        panel = (
            load_vintages(file).published()
            if by_publication
            else load_panel(file, reading.format, **reading.options)
        )
        frame = panel.to_table().rename({"date": "day"})
        notes, read_as = panel.notes, dict(reading.options)
    else:
        frame, notes, read_as = table.frame, table.notes, table.read_as
    clean = _clean(frame)
    if out.suffix.lower() == ".parquet":
        write_parquet(out, clean)
    else:
        write_text(out, _as_csv(clean))
    cases, days = float(clean["cases"].sum()), clean["date"].sort()
    record = {
        "epifed": version("epifed"),
        "source": file.name,
        "source_sha256": None if file.is_dir() else source_digest(file),
        "said": reading.options,
        "read_as": read_as,
        "by": "publication" if by_publication else "report",
        "changed": list(notes),
        "rows": len(clean),
        "regions": clean["region"].n_unique(),
        "first_day": days[0],
        "last_day": days[-1],
        "cases": cases,
    }
    write_text(out.with_name(f"{out.name}.json"), to_json(record) + "\n")
    print(
        f"{out}: {counted(len(clean), 'row')}, {counted(record['regions'], 'region')}, "
        f"{days[0]} to {days[-1]}, {cases:,.12g} cases"
    )
    for note in notes:
        print(f"  {note}")
    kept = {k: v for k, v in reading.options.items() if v in _KEPT.get(k, ())}
    print(f"Look at it with: epifed data check {out} {in_words(kept)}".rstrip())


def _clean(frame: "pl.DataFrame") -> "pl.DataFrame":
    """date, region, cases and facts in order, whole numbers as such."""
    import polars as pl

    from epifed.sources.facts import SAID_FACTS

    names = [name for name in ("region", "cases", *SAID_FACTS) if name in frame.columns]
    clean = frame.select(pl.col("day").alias("date"), *names).sort("region", "date")
    whole = clean["cases"].drop_nulls()
    return (
        clean.with_columns(pl.col("cases").cast(pl.Int64))
        if (whole == whole.round()).all()
        else clean
    )


def _as_csv(clean: "pl.DataFrame") -> str:
    """The table as CSV; a fraction of three digits gets a fourth, for it is no thousand."""
    import polars as pl

    if clean.schema["cases"] == pl.Float64:
        text = pl.col("cases").cast(pl.String)
        fourth = pl.when(text.str.contains(r"\.\d{3}$")).then(text + "0").otherwise(text)
        clean = clean.with_columns(fourth)
    return clean.write_csv()
