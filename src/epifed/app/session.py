"""The state of the page: one file, its check and forecast, and a member site's week."""

import hashlib
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from filelock import FileLock, Timeout

from epifed.app.reading import (
    ENTRY,
    LEFT_OUT,
    FileReading,
    Memory,
    inhabitants_for,
    read_file,
    shape_of,
)
from epifed.data.panel import CasePanel
from epifed.data.quality import clean
from epifed.data.readers.tables import Assumptions, existing, short
from epifed.data.readers.vintage_files import read_entries
from epifed.data.vintages import Vintages
from epifed.data_check import check_panel
from epifed.errors import EpifedError, in_german
from epifed.forecasting import TOTAL
from epifed.intervals import LEVELS
from epifed.local_forecast import LEAST_ORIGINS, LocalForecast, forecast_alone

if TYPE_CHECKING:
    from epifed.site_report import Member

SHOWN_STEPS = {"day": 182, "week": 156}
"""Days or weeks of each region that the page draws."""
MOST_COUNTS = 400_000
MOST_ANOMALIES = 200
REPEATED = ("missing", "only")
"""Options that can be given several times."""
LONGEST_NAME = 120
SHOWN_LEVELS = (0.025, 0.25, 0.5, 0.75, 0.975)
SAID = ("problem", "problems", "notes", "sentence", "left_out")
"""Keys of the state whose values have sentences of epifed's own."""
MAPS = (".geojson", ".json")
"""File name endings of maps."""
TAKEN = ("xlsx", "csv", "html")
"""Downloads that the page offers, by file name ending."""


PRIVATE = "epifed-open-"
"""Prefix of the folder that holds the dropped files."""
LOCK = "lock"
JUST_MADE = 10
"""Seconds after its creation in which a folder may not be locked yet."""


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder for the dropped files, deleted at the end; those of killed pages are deleted first.

    A page holds a lock in its folder while it runs; the system releases the lock when it ends.
    """
    for old in Path(tempfile.gettempdir()).glob(f"{PRIVATE}*/{LOCK}"):
        with suppress(OSError, Timeout):
            if time.time() - old.stat().st_mtime > JUST_MADE:
                with FileLock(old, blocking=False):
                    shutil.rmtree(old.parent, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=PRIVATE, ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        with FileLock(folder / LOCK):
            yield folder


class PageSession:
    """One person's work with one file at a time; every method may be called from any thread."""

    def __init__(
        self, folder: Path, memory: Memory | None = None, member: "Member | None" = None
    ) -> None:
        self.folder, self.memory, self.member = folder, memory or Memory(), member
        self.file: FileReading | None = None
        self.forecast: LocalForecast | None = None
        self.progress = (0, 0)
        """Past weeks that are done, and their total number, of a forecast in progress."""
        self._wished: dict[str, Any] = {}
        self._alone = False
        self._shape = ""
        self._boundaries: Path | None = None
        self._map: tuple[FileReading, Path | None, dict[str, Any] | None] | None = None
        self._files = 0
        self._lock = RLock()

    def actions(self) -> dict[str, Callable[[bytes], object]]:
        """The actions that the page can request, by name; each takes JSON."""
        return {
            "answer": self._answer,
            "anew": self._anew,
            "close": self._close,
            "forecast": self._forecast,
            "preview": self._preview,
            "own": self._own,
        }

    def new_file(self, name: str) -> tuple[Path, str]:
        """A path for a file that is dropped on the page, and the file's plain name."""
        plain = plain_name(name)
        with self._lock:
            self._files += 1
            place = self.folder / str(self._files)
        place.mkdir(mode=0o700)
        return place / plain, plain

    def open(self, path: Path, name: str) -> None:
        """Read a file with the answers kept for its shape; a GeoJSON file is used as its map."""
        with self._lock:
            if Path(name).suffix.lower() in MAPS:
                return self._open_map(path)
            existing(path)
            if self.file is not None and inhabitants_for(self.file, path):
                self._forget_forecast()
                said = self.file.said | {"population_from": str(path)}
                self.file = read_file(self.file.path, self.file.name, said)
                return
            self._forget_file()
            self._shape = shape_of(path)
            said = self.memory.answers(self._shape)
            reading = read_file(path, name, said)
            if said and reading.panel is None:
                reading = read_file(path, name, {})
            reading.remembered = bool(said) and reading.said == said
            self.file = reading

    def _open_map(self, path: Path) -> None:
        """Use a GeoJSON file as the map of the open file's regions."""
        from epifed.report.drawing import read_shapes  # noqa: PLC0415

        panel = self._panel()
        if panel is None:
            raise EpifedError(f"{path}: found a map; expected a file of cases before it")
        read_shapes(path, panel.regions, panel.names)
        self._boundaries = path
        if self.forecast is not None:
            self.forecast = replace(self.forecast, panel=self._on_map(self.forecast.panel))

    def _panel(self) -> CasePanel | None:
        return self.file.panel if self.file else None

    def _on_map(self, panel: CasePanel) -> CasePanel:
        """The panel with the dropped map, if there is one."""
        return replace(panel, boundaries=self._boundaries) if self._boundaries else panel

    def _outlines(self) -> dict[str, Any] | None:
        """The map of the open file, drawn once."""
        from epifed.report.drawing import map_of  # noqa: PLC0415

        panel, file = self._panel(), self.file
        if panel is None or file is None:
            return None
        if self._map is None or self._map[:2] != (file, self._boundaries):
            try:
                drawn = map_of(self._on_map(panel))
            except EpifedError:  # a map of an earlier file, with other regions
                self._boundaries = None
                drawn = map_of(panel)
            if drawn is not None:
                drawn["id"] = hashlib.sha256(json.dumps(drawn).encode()).hexdigest()[:16]
            self._map = file, self._boundaries, drawn
        return self._map[2]

    def plain(self, sentence: str) -> str:
        """Replace paths in a sentence by the file name that the person knows."""
        with self._lock:
            name = self.file.name if self.file else ""
            path = str(self.file.path) if self.file else ""
        plain = sentence.replace(path, name) if path else sentence
        return re.sub(re.escape(f"{self.folder}/") + r"\d+/", "", plain)

    def state(self) -> dict[str, Any]:
        """All that the page shows."""
        with self._lock:
            panel = self.file.panel if self.file else None
            state = {
                "version": version("epifed"),
                "member": self.member.to_dict() if self.member else None,
                "file": self.file.to_dict() if self.file else None,
                "check": checked(panel) if panel else None,
                "map": self._outlines(),
                "forecast": forecast_dict(self.forecast, self._alone) if self.forecast else None,
            }
            return state | {"german": in_both(state["file"]) | in_both(state["member"])}

    def take(self, kind: str) -> Path:
        """Write a download, which has the last day of the data (or the week) in its name."""
        with self._lock:
            if kind == "week":
                week, report = self._of_member().report()
                return _copied(report, self._taken() / f"epifed-{week}.html")
            made = self.forecast
            if made is None or kind not in TAKEN:
                raise EpifedError(
                    f"{short(kind)}: there is no such file; expected a forecast first"
                )
            folder = self._taken()
            path = folder / f"epifed-forecast-{made.origin}.{kind}"
            if kind == "xlsx":
                made.write_workbook(path)
            elif kind == "csv":
                made.write_csv(path)
            else:
                made.write_results(folder / "results")
                made.write_report(folder / "results", path)
            return path

    def _taken(self) -> Path:
        """The folder of downloads, deleted together with the file that they are made from."""
        folder = self.folder / "take"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def _forecast(self, body: bytes) -> None:
        """Forecast from the open file; options that are not in the request keep their values."""
        wished = _object(body)
        with self._lock:
            panel = self._opened().panel
            if panel is None:
                raise EpifedError("found questions on the file; expected answers before a forecast")
            self._wished |= {k: wished[k] for k in ("incomplete_days", "region") if k in wished}
            region, days = self._wished.get("region"), self._wished.get("incomplete_days")
            if not (days is None or isinstance(days, int)):
                raise EpifedError(
                    f"incomplete days: found '{short(days)}'; expected a whole number"
                )
            self.progress = (0, 0)
            self.forecast = forecast_alone(
                self._on_map(panel),
                region=region,
                incomplete_days=days,
                vintages=self._vintages(panel),
                progress=self._progressed,
            )
            self._alone = region is not None

    def _vintages(self, panel: CasePanel) -> Vintages | None:
        """The data vintages, if the file is a line list with a day of entry."""
        file = self._opened()
        if not file.entry or file.tidy is None:
            return None
        options = {k: v for k, v in file.reader_options.items() if k != "population_from"}
        return read_entries(file.path, file.entry, panel.regions, **options)

    def _preview(self, _: bytes) -> None:
        """Preview what this site would send, from the open file if the kit has no data."""
        with self._lock:
            file = self.file
            source = None
            if file is not None and file.panel is not None:
                source = {"path": str(file.path), "options": file.reader_options}
            self._of_member().look_ahead(source)

    def _own(self, _: bytes) -> None:
        with self._lock:
            self._of_member().make_own()

    def _of_member(self) -> "Member":
        if self.member is None:
            raise EpifedError("found no kit; expected 'epifed open --kit FOLDER'")
        return self.member

    def _progressed(self, done: int, of: int) -> None:
        self.progress = (done, of)

    def _answer(self, body: bytes) -> None:
        """Read the file again with a further answer; a value of null removes an option."""
        answers = _object(body)
        with self._lock:
            file = self._opened()
            said = {**file.said}
            for name, value in answers.items():
                said.pop(name, None)
                if name in REPEATED and value is not None:
                    said[name] = [*file.said.get(name, ()), value]
                elif value is not None:
                    said[name] = value
            Assumptions.of(
                {k: v for k, v in said.items() if k != ENTRY and v != LEFT_OUT}, file.name
            )
            self._forget_forecast()
            self.file = read_file(file.path, file.name, said)
            if self.file.panel is not None:
                self.memory.keep(self._shape, said)

    def _anew(self, _: bytes) -> None:
        """Forget the answers for files of this shape, and ask again."""
        with self._lock:
            file = self._opened()
            self.memory.keep(self._shape, {})
            self._forget_forecast()
            self.file = read_file(file.path, file.name, {})

    def _close(self, _: bytes) -> None:
        with self._lock:
            self._forget_file()

    def _forget_file(self) -> None:
        """Close the file and delete its copy, before the next one is read."""
        file = self.file
        for path in (file.path, Path(file.said.get("population_from", ""))) if file else ():
            if self.folder in path.parents:
                shutil.rmtree(path.parent, ignore_errors=True)
        self.file = None
        self._forget_forecast()

    def _forget_forecast(self) -> None:
        self.forecast, self._wished = None, {}
        shutil.rmtree(self.folder / "take", ignore_errors=True)

    def _opened(self) -> FileReading:
        if self.file is None:
            raise EpifedError("found no open file; expected one on the page")
        return self.file


def _copied(source: Path, path: Path) -> Path:
    shutil.copyfile(source, path)
    return path


def plain_name(name: str) -> str:
    """The last part of a name that a browser sent, without characters that file names cannot have.

    >>> plain_name("C:\\\\data\\\\../cases?.csv")
    'cases.csv'
    """
    last = re.split(r"[\\/]", name)[-1]
    plain = re.sub(r'[\x00-\x1f\x7f<>:"|?*]', "", last).strip(". ")
    return plain[-LONGEST_NAME:] or "file"


def in_both(state: object, said: bool = False) -> dict[str, str]:
    """The sentences in the state, each with its German translation."""
    if isinstance(state, str):
        return {state: in_german(state)} if said else {}
    german: dict[str, str] = {}
    for name, part in state.items() if isinstance(state, dict) else ():
        german |= in_both(part, said or name in SAID)
    for part in state if isinstance(state, list) and said else ():
        german |= in_both(part, said)
    return german


def checked(panel: CasePanel) -> dict[str, Any]:
    """What the page shows of the counts before a forecast is made."""
    report = check_panel(panel)
    regions, steps = panel.counts.shape
    shown = min(steps, SHOWN_STEPS[panel.step], max(42, MOST_COUNTS // regions))
    begin = steps - shown
    counts = np.round(panel.counts[:, begin:], 2)
    anomalies = clean(panel).to_long(shown * panel.step_days).head(MOST_ANOMALIES)
    rows = {region: i for i, region in enumerate(panel.regions)}
    gaps: list[list[int]] = []
    if panel.reported is not None:
        places = np.argwhere(~panel.reported[:, begin:])
        gaps = places[:MOST_COUNTS].tolist()
    return {
        "step": panel.step,
        "ids": panel.regions,
        "names": panel.names,
        "people": None if panel.population is None else panel.population.tolist(),
        "first_day": report.first_day.isoformat(),
        "last_day": report.last_day.isoformat(),
        "days": report.days,
        "cases": report.cases,
        "enough": report.enough_days,
        "needed": report.days_needed,
        "start": panel.day(begin).isoformat(),
        "counts": counts.tolist(),
        "gaps": gaps,
        "missing": {
            "count": report.gaps.missing,
            "share": report.gaps.share,
            "regions": report.gaps.regions,
            "longest": report.gaps.longest,
            "region": report.gaps.longest_region,
        },
        "silent": list(report.silent_regions),
        "fractional": report.fractional,
        "incomplete_days": report.incomplete_days,
        "future_days": report.future_days,
        "anomaly_counts": report.anomaly_counts,
        "anomalies": [
            [rows[region], day.isoformat(), kind, round(reported, 1), round(expected, 1)]
            for region, day, kind, reported, expected in anomalies.iter_rows()
        ],
    }


def forecast_dict(made: LocalForecast, alone: bool) -> dict[str, Any]:
    """What the page shows of a forecast: cases of seven days, [regions][weeks][levels]."""
    places = [LEVELS.index(level) for level in SHOWN_LEVELS]

    def laid(whole: bool) -> tuple[list[Any], list[Any]]:
        every = made.total if whole else made.forecasts
        quantiles = (
            np.stack([forecast.quantiles[:, places] for forecast in every], axis=1) * made.weekly
        )
        points = np.stack([forecast.point for forecast in every], axis=1) * made.weekly
        return np.round(quantiles, 1).tolist(), np.round(points, 1).tolist()

    (values, point), (total, total_point) = laid(False), laid(True)
    like = np.round(made.like_today * made.weekly, 1)
    return {
        "origin": made.origin.isoformat(),
        "method": made.method,
        "region": made.panel.regions[0] if alone else None,
        "one_region": len(made.panel.regions) == 1,
        "dates": [forecast.target_date.isoformat() for forecast in made.forecasts],
        "values": values,
        "point": point,
        "total": total[0],
        "total_point": total_point[0],
        "like_today": like.tolist(),
        "total_like_today": float(np.round(made.like_today.sum() * made.weekly, 1)),
        "rise": _chances_of_rise(made),
        "track": [vars(record) for record in made.learner_record],
        "shown_track": [vars(record) for record in made.track_record],
        "least_origins": LEAST_ORIGINS,
        "incomplete_days": made.incomplete_days,
        "incomplete_days_found": made.incomplete_days_found,
        "nowcast": _nowcast_dict(made),
    }


def _chances_of_rise(made: LocalForecast) -> list[float | None]:
    """The probability that next week is above the last one: of all regions, then of each."""
    quantiles = np.concatenate([made.total[0].quantiles, made.forecasts[0].quantiles])
    today = [float(made.like_today.sum()), *made.like_today.tolist()]
    levels = np.array(LEVELS)
    return [
        round(float(1 - np.interp(now, row, levels, left=levels[0], right=levels[-1])), 3)
        for now, row in zip(today, quantiles, strict=True)
    ]


def _nowcast_dict(made: LocalForecast) -> dict[str, Any] | None:
    """The last two weeks as known and as estimated, and R(t): [regions][days], the total last."""
    if made.nowcast is None or made.nowcast_together is None:
        return None
    every = pl.concat([made.nowcast, made.nowcast_together])
    days = made.nowcast["date"].unique().sort().to_list()
    names = ("known", "estimate", "lower", "upper", "r", "r_lower", "r_upper")
    columns = {
        (region, day): values
        for region, day, *values in every.select("region", "date", *names).iter_rows()
    }
    laid = {
        name: [
            [_rounded(columns.get((region, day), [None] * len(names))[place]) for day in days]
            for region in (*made.panel.regions, TOTAL)
        ]
        for place, name in enumerate(names)
    }
    return {"days": [day.isoformat() for day in days], **laid}


def _rounded(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else round(float(value), 2)


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        wished = json.loads(body or b"{}")
    except ValueError:
        raise EpifedError("found no JSON in a request; expected an object") from None
    if not isinstance(wished, dict):
        raise EpifedError("found no object in a request; expected one")
    return wished
