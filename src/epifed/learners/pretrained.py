"""A weekly forecaster fitted on public data only: one linear regression for each week of the year.

A client describes its last weeks by a few features, each relative to its own history: level,
distance from its own maximum, growth, and the released growth of all clients. The forecast is what
followed such features in public series, in the same part of the year. The file holds the
coefficients and their provenance. It uses no private data, so it has no privacy cost.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epifed.data.panel import CasePanel
from epifed.errors import EpifedError
from epifed.intervals import LEVELS

Floats = NDArray[np.float64]

FORMAT = "epifed-pretrained-1"
SHIPPED = "respiratory"
"""The name of the file in the package."""
HORIZONS = 4
WEEKS = 53
ALL_YEAR = WEEKS
"""The row of a damped trend, which ignores the season: the simple forecast used beside."""
FEATURES = (
    "one",
    "level above the own mean",
    "level below it",
    "below the maximum of 20 weeks",
    "below the maximum of two years",
    "last growth, where counts are smooth",
    "growth before",
    "growth of the two weeks before that",
    "last growth, where counts are rough",
    "growth before, where rough",
    "growth of all clients",
    "their growth before",
)

HISTORY, YEAR, RECENT = 104, 52, 20
"""Weeks of history used: at most, for the mean, and for the recent maximum."""
YOUNG = 10.0
"""Weeks of history at which the distance from the own mean has half its weight."""
OFFSET, FEW = 0.02, 1.0
"""Additions before a logarithm: a share of the own scale, and one case for whole counts."""
HIGH = 0.9
"""The quantile of the own past that defines the scale."""
FARTHEST, FASTEST = 3.0, 1.0
"""Bounds on a log distance and on the log growth of a week."""
ROUGH_WEEKS, ROUGH_MEMORY = 25, 0.93
USUAL_ROUGH, ROUGH_PRIOR = 0.01, 4.0
"""The usual variance of a week by chance, and its weight in weeks."""
ROUGHEST = 0.3
FADING = 0.7
"""The growth of the week before relative to the last one, where it is not known."""

KERNEL, EVERY_WEEK = 3.0, 0.02
"""Width in weeks of the kernel around the week of the year, and the weight of all other weeks."""
RIDGE = 3e-4
FOLLOW, OWN_SMOOTH, OWN_ROUGH, DAMPING = 0.5, 0.5, 0.3, 0.5
REVERTING, FROM_BELOW, STAYING = 0.08, 0.04, 0.9
"""The damped trend: shares of the released and own growth in the next week, and the weekly factor.
Then the shares of the distance above and below the mean that are lost, and their weekly factor."""
ROUNDS = 4
"""Steps of reweighting towards the median."""


@dataclass(frozen=True)
class Described:
    """Features of some clients' last weeks, relative to their own history."""

    features: Floats
    """[regions, features]"""
    roughness: Floats
    """Standard deviation of one week by chance, as a log change: [regions]."""
    log: Floats
    """The log of the last week plus the offset: [regions]."""
    offset: Floats


def few_of(counts: Floats) -> Floats:
    """The addition to each region's counts before a logarithm: 1 for whole counts, 0 for rates."""
    whole = (counts == np.round(counts)).mean(axis=1) > 0.5
    return np.where(whole, FEW, 0.0)


def describe(counts: Floats, growth: Floats, few: Floats) -> Described:
    """Describe the last week of counts [regions, weeks], without gaps.

    `growth` is the log growth of all clients in each week [weeks], NaN where unknown. `few` is
    the addition to the counts of each region.
    """
    counts = counts[:, -HISTORY:]
    regions, weeks = counts.shape
    offset = OFFSET * np.maximum(np.quantile(counts, HIGH, axis=1), 1e-6) + few
    logs = np.log(np.maximum(counts, 0.0) + offset[:, None])
    last, believed, recent = logs[:, -1], weeks / (weeks + YOUNG), min(weeks, RECENT)
    apart = last - np.log(np.maximum(counts[:, -YEAR:], 0.0).mean(axis=1) + offset)
    apart = np.clip(apart, -FARTHEST, FARTHEST) * believed
    below = np.maximum(last - logs[:, -recent:].max(axis=1), -FARTHEST) * recent / RECENT
    lowest = np.maximum(last - logs.max(axis=1), -FARTHEST) * believed
    change = np.zeros((4, regions))
    for back in range(min(4, weeks - 1)):
        change[back] = np.clip(logs[:, -1 - back] - logs[:, -2 - back], -FASTEST, FASTEST)
    bends = np.minimum(np.diff(logs[:, -ROUGH_WEEKS - 2 :], 2, axis=1) ** 2 / 6, ROUGHEST)
    weight = ROUGH_MEMORY ** np.arange(bends.shape[1])[::-1]
    variance = (bends @ weight + ROUGH_PRIOR * USUAL_ROUGH) / (weight.sum() + ROUGH_PRIOR)
    smooth = USUAL_ROUGH / (USUAL_ROUGH + variance)
    now, before = shared_growth(growth)
    one = np.ones(regions)
    features = np.stack(
        [
            one,
            np.maximum(apart, 0.0),
            np.minimum(apart, 0.0),
            below,
            lowest,
            smooth * change[0],
            smooth * change[1],
            smooth * (change[2] + change[3]) / 2,
            (1 - smooth) * change[0],
            (1 - smooth) * change[1],
            one * now,
            one * before,
        ],
        axis=1,
    )
    return Described(features, np.sqrt(variance), last, offset)


def shared_growth(growth: Floats) -> tuple[float, float]:
    """The log growth of all clients in the last week, and its mean in the two weeks before."""
    now = 0.0 if len(growth) == 0 or np.isnan(growth[-1]) else float(growth[-1])
    before = growth[-3:-1][~np.isnan(growth[-3:-1])]
    return now, float(before.mean()) if len(before) else FADING * now


def week_of_year(day: date) -> int:
    """The week of the year of a day, from 0 to 52."""
    return min(round(day.timetuple().tm_yday / 7), WEEKS - 1)


@dataclass(frozen=True)
class Pretrained:
    """The coefficients of a forecaster fitted on public data, with their provenance."""

    coefficients: Floats
    """[weeks of the year, then all weeks; horizons; features]: the log change."""
    spread: Floats
    """[weeks of the year, then all weeks; horizons; 2]: mean error, and its slope in roughness."""
    shape: Floats
    """[horizons, levels]: distance of each quantile from the median, in mean errors."""
    provenance: Mapping[str, Any]

    def predict(self, now: Described, week: int, horizon: int) -> tuple[Floats, Floats]:
        """The expected log change in so many weeks, and its mean error: [regions]."""
        width = self.spread[week, horizon - 1]
        change: Floats = now.features @ self.coefficients[week, horizon - 1]
        return change, width[0] + width[1] * now.roughness

    def digest(self) -> str:
        """The SHA-256 of the numbers."""
        numbers = (self.coefficients, self.spread, self.shape)
        return sha256(b"".join(one.tobytes() for one in numbers)).hexdigest()

    def write(self, path: Path) -> None:
        """Write the forecaster as JSON, with its provenance first."""
        numbers = {
            name: np.round(getattr(self, name), 4).tolist()
            for name in ("coefficients", "spread", "shape")
        }
        head = {"format": FORMAT, "provenance": dict(self.provenance)}
        record = head | {"features": FEATURES, "levels": LEVELS} | numbers
        path.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")


def read_pretrained(name: str) -> Pretrained:
    """Read the forecaster in a file, or the package's own by its name."""
    return _parsed(name, *_text(name))


def _text(name: str) -> tuple[str, ...]:
    shipped = files("epifed.learners").joinpath(f"pretrained_{name}.json")
    if name.isidentifier() and shipped.is_file():
        return (shipped.read_text(encoding="utf-8"),)
    try:
        return (Path(name).read_text(encoding="utf-8"),)
    except (OSError, UnicodeDecodeError):
        raise EpifedError(
            f"pretrained: found no file '{name}'; expected '{SHIPPED}', or a file that "
            "'epifed pretrain' wrote"
        ) from None


@cache
def _parsed(name: str, text: str) -> Pretrained:
    try:
        record = json.loads(text)
        arrays = [np.array(record[key], dtype=np.float64)
                  for key in ("coefficients", "spread", "shape")]  # fmt: skip
        alike = record["format"] == FORMAT and record["features"] == list(FEATURES)
        alike = alike and record["levels"] == list(LEVELS)
    except (ValueError, KeyError, TypeError):
        alike, arrays, record = False, [], {}
    shapes: list[tuple[int, ...]] = [
        (WEEKS + 1, HORIZONS, len(FEATURES)),
        (WEEKS + 1, HORIZONS, 2),
        (HORIZONS, len(LEVELS)),
    ]
    if not alike or [one.shape for one in arrays] != shapes:
        raise EpifedError(
            f"{name}: found no forecaster of this version; expected a file that "
            "'epifed pretrain' wrote"
        )
    if not all(np.isfinite(one).all() for one in arrays):
        raise EpifedError(f"{name}: found a number that is not finite; expected finite ones")
    coefficients, spread, shape = arrays
    return Pretrained(coefficients, spread, shape, record["provenance"])


@dataclass(frozen=True)
class PublicSeries:
    """Public weekly series of some regions, for fitting."""

    panel: CasePanel
    weight: float = 1.0
    """The weight of one week of a region."""
    leave_out: tuple[int, ...] = ()
    """Years whose season, which begins in August, is not used."""


@dataclass(frozen=True)
class _Samples:
    """Features and the changes that followed; rows of all regions and weeks."""

    features: Floats
    roughness: Floats
    change: Floats
    """[samples, horizons]; NaN where unknown."""
    week: NDArray[np.int64]
    """The week of the year."""
    weight: Floats


def fit_pretrained(series: Sequence[PublicSeries], about: Mapping[str, Any]) -> Pretrained:
    """Fit the forecaster on public weekly series; `about` is their provenance."""
    parts = [_samples(one) for one in series]
    every = _Samples(
        *(np.concatenate([getattr(part, name) for part in parts])
          for name in ("features", "roughness", "change", "week", "weight"))
    )  # fmt: skip
    known = int((~np.isnan(every.change[:, -1])).sum())
    if known < 20 * len(FEATURES):
        raise EpifedError(
            f"pretrain: found {known} weeks of regions to learn from; expected at least "
            f"{20 * len(FEATURES)}, after two months of each region's own"
        )
    coefficients = np.zeros((WEEKS + 1, HORIZONS, len(FEATURES)))
    spread = np.zeros((WEEKS + 1, HORIZONS, 2))
    shape = np.zeros((HORIZONS, len(LEVELS)))
    for week in range(WEEKS + 1):
        weight, trend = every.weight, None
        if week != ALL_YEAR:
            apart = np.abs(every.week - week)
            apart = np.minimum(apart, WEEKS - apart)
            weight = weight * (np.exp(-0.5 * (apart / KERNEL) ** 2) + EVERY_WEEK)
        for horizon in range(HORIZONS):
            if week == ALL_YEAR:
                trend = damped_trend(horizon + 1)
            there = ~np.isnan(every.change[:, horizon])
            made = _regressed(
                every.features[there], every.change[there, horizon], every.roughness[there],
                weight[there], trend,
            )  # fmt: skip
            coefficients[week, horizon], spread[week, horizon] = made[:2]
            if week == ALL_YEAR:
                shape[horizon] = made[2]
    return Pretrained(coefficients, spread, shape, dict(about))


def damped_trend(horizon: int) -> Floats:
    """The coefficients of a fading growth, and of a level that returns to its mean."""
    growth, level = ((1 - share**horizon) / (1 - share) for share in (DAMPING, STAYING))
    used = {
        "growth of all clients": FOLLOW * growth,
        "last growth, where counts are smooth": OWN_SMOOTH * growth,
        "last growth, where counts are rough": OWN_ROUGH * growth,
        "level above the own mean": -REVERTING * level,
        "level below it": -FROM_BELOW * level,
    }
    return np.array([used.get(name, 0.0) for name in FEATURES])


def _regressed(
    features: Floats, change: Floats, roughness: Floats, weight: Floats, given: Floats | None
) -> tuple[Floats, Floats, Floats]:
    """Coefficients of the median unless given, the mean error by roughness, and its shape."""
    penalty = RIDGE * weight.sum() * np.diag([0.01, *[1.0] * (features.shape[1] - 1)])
    usual = np.sqrt(0.01 + roughness**2)
    pulled = weight
    for _ in range(ROUNDS):
        scaled = features * pulled[:, None]
        found = np.linalg.solve(scaled.T @ features + penalty, scaled.T @ change)
        found = found if given is None else given
        error = change - features @ found
        pulled = weight / np.maximum(np.abs(error) / usual, 0.4)
    sides = np.stack([np.ones(len(error)), roughness], axis=1)
    scaled = sides * weight[:, None]
    width = np.linalg.solve(scaled.T @ sides + 1e-9 * np.eye(2), scaled.T @ np.abs(error))
    width = np.maximum(width, [0.02, 0.0])
    away = error / (sides @ width)
    order = np.argsort(away)
    share = np.cumsum(weight[order]) / weight.sum()
    return found, width, np.interp(LEVELS, share, away[order])


def _samples(series: PublicSeries) -> _Samples:
    """Describe every week of public series as a client would have on that day."""
    panel = series.panel
    panel.refuse_step("week")
    counts = panel.counts.copy()
    reported = np.ones(counts.shape, bool) if panel.reported is None else panel.reported
    for week in range(1, counts.shape[1]):
        counts[~reported[:, week], week] = counts[~reported[:, week], week - 1]
    begun = np.maximum.accumulate(reported, axis=1).cumsum(axis=1)
    few = few_of(panel.counts)
    begins = [day.year if day.month >= 8 else day.year - 1 for day in panel.days]
    learned = ~np.isin(begins, series.leave_out)
    reported = reported & learned
    if not learned.any():
        return _nothing()
    growth = mean_growth(counts, OFFSET * np.quantile(counts[:, learned], HIGH, axis=1) + few)
    rows: list[tuple[Floats, ...]] = []
    for week in range(8, counts.shape[1] - 1):
        day = panel.day(week)
        there = np.flatnonzero(reported[:, week] & (begun[:, week] > 8))
        if not len(there):
            continue
        known = slice(max(week + 1 - HISTORY, 0), week + 1)
        now = describe(counts[there, known], growth[: week + 1], few[there])
        change = np.full((len(there), HORIZONS), np.nan)
        for horizon in range(1, min(HORIZONS, counts.shape[1] - 1 - week) + 1):
            later = np.log(counts[there, week + horizon] + now.offset) - now.log
            come = reported[there, week + horizon]
            change[come, horizon - 1] = later[come]
        ones, place = np.ones(len(there)), week_of_year(day)
        rows.append((now.features, now.roughness, change, ones * place, ones * series.weight))
    if not rows:
        return _nothing()
    features, roughness, change, week_of, weight = (
        np.concatenate(column) for column in zip(*rows, strict=True)
    )
    return _Samples(features, roughness, change, week_of.astype(np.int64), weight)


def _nothing() -> _Samples:
    """No samples, for a series of which nothing is used."""
    none = np.zeros(0)
    features, change = np.zeros((0, len(FEATURES))), np.zeros((0, HORIZONS))
    return _Samples(features, none, change, none.astype(np.int64), none)


def mean_growth(counts: Floats, offset: Floats) -> Floats:
    """The log growth of all regions in each week, computed as in a release: [weeks]."""
    change = bounded_change(counts, offset).mean(axis=0)
    return np.concatenate([[np.nan], 2 * np.arctanh(change)])


LARGEST_CHANGE = 0.4
"""Bound on a client's relative change, (now - before) / (now + before)."""


def bounded_change(counts: Floats, offset: Floats) -> Floats:
    """The bounded relative change of each week against the week before: [regions, weeks - 1]."""
    now, before = counts[:, 1:], counts[:, :-1]
    change: Floats = (now - before) / np.maximum(now + before + 2 * offset[:, None], 1e-9)
    return np.clip(change, -LARGEST_CHANGE, LARGEST_CHANGE)
