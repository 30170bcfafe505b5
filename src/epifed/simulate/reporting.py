"""From falling ill to a line in the statistics: tests, desks, weekends, backlogs, corrections."""

from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from epifed.simulate.country import Country
from epifed.simulate.epidemic import BURN_IN, Course, smallness, waves
from epifed.simulate.settings import Preset, Regime, over_days

Array = NDArray[np.float64]
Counts = NDArray[np.int32]

WITHHELD = (0.6, 1.7)
"""The parameters of the beta distribution of the share of working days whose cases an authority
sends as a whole after the next morning: a quarter on average, in many hardly any, in some most."""
PUNCTUAL = (1.75, 0.7)
"""The same of the share that it sends before the next morning of any other day's cases."""
EVENLY = 3.0
"""How little that share differs from day to day (sum of the beta parameters)."""
SENDING = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.68, 0.66])
"""What is sent on Monday … Sunday, relative to a working day: some offices are empty."""
WITHDRAWN = 0.01
"""Cases published at first and taken back later, relative to those published with them."""
TEST_DAYS = 5.0
"""Days after which an authority's luck in finding cases has changed."""
UNEVEN = 1.5
"""Small: an authority is nearly always or nearly never closed (sum of the beta parameters)."""
CYCLE_ROUNDS = 6


@dataclass(frozen=True)
class Reports:
    """By day and community, burn-in included."""

    onsets: Counts
    """Cases by day of onset: reported by now or pending."""
    cases: Counts
    """Final counts by reporting date."""
    first_report: Counts
    """The same as known on the next morning: late ones missing, withdrawn ones still in."""
    pending: NDArray[np.int64]
    """Cases that are not yet reported after the last day."""


def report(
    country: Country, preset: Preset, national: Course, ill: Counts, seed: np.random.SeedSequence
) -> Reports:
    """Find a share of the ill, send them through two stages of testing and over a desk."""
    test_seed, office_seed, draw_seed, correction_seed, habit_seed = seed.spawn(5)
    days, steps = len(ill), national.steps
    county_of = country.county_of
    found = found_shares(country, preset, national, np.random.default_rng(test_seed))
    chance = desk_chances(country, preset, national, np.random.default_rng(office_seed))
    rng = np.random.default_rng(draw_seed)
    waiting = np.zeros(ill.shape[1], dtype=np.int64)
    tested, desk = waiting.copy(), waiting.copy()
    onsets, cases = np.empty_like(ill), np.empty_like(ill)
    for day in range(days):
        arrived = rng.binomial(tested, steps.test[day])
        swabbed = rng.binomial(waiting, steps.test[day])
        onsets[day] = rng.binomial(ill[day], found[day][county_of])
        waiting += onsets[day] - swabbed
        tested += swabbed - arrived
        desk += arrived
        cases[day] = rng.binomial(desk, chance[day][county_of])
        desk -= cases[day]
    rng = np.random.default_rng(correction_seed)
    sending = sent_on(preset.start - timedelta(days=BURN_IN), days)
    sent = _sent_at_once(sending, len(country.county_ids), np.random.default_rng(habit_seed))
    first = rng.binomial(cases, sent[:, county_of])
    first += rng.poisson(WITHDRAWN * first)
    return Reports(onsets, cases, first.astype(np.int32), waiting + tested + desk)


def sent_on(first: date, days: int) -> Array:
    """What authorities send to the list on each day, relative to a working day."""
    return np.asarray(SENDING[_office_days(first, days)])


def _sent_at_once(sending: Array, counties: int, rng: np.random.Generator) -> Array:
    """The share of each day's cases, by county, that is known on the next morning."""
    rank = (np.argsort(rng.random((2, counties)), axis=1) + 0.5) / counties
    withheld = betaincinv(*WITHHELD, rank[0])
    habit = np.clip(betaincinv(*PUNCTUAL, rank[1]), 0.01, 0.99)
    days = len(sending), counties
    shares = rng.beta(EVENLY * habit, EVENLY * (1 - habit), size=days)
    return np.where(rng.random(days) < sending[:, None] * (1 - withheld), shares, 0.0)


def found_shares(
    country: Country, preset: Preset, national: Course, rng: np.random.Generator
) -> Array:
    """Share of infections that will be reported, by day of onset and county."""
    first, days = preset.start - timedelta(days=BURN_IN), len(national.infections)
    noise = over_days(preset, first, days, lambda r: r.test_noise)[:, None] * smallness(country)
    path = waves(np.full(days, TEST_DAYS), len(country.county_ids), rng)
    share = national.steps.ascertain[:days, None] * np.exp(noise * path - noise**2 / 2)
    return np.asarray(np.minimum(share, 1.0))


def desk_chances(
    country: Country, preset: Preset, national: Course, rng: np.random.Generator
) -> Array:
    """Probability, by day and county, that a case on the desk is reported that day.

    Noise, closed offices and holidays bend the weekly cycle, so the offices' weeks are adjusted
    until the cases of the national course come out with the regimes' weekday factors.
    """
    first, days = preset.start - timedelta(days=BURN_IN), len(national.infections)
    people = country.county_population
    counties = len(people)
    weekday = (first.weekday() + np.arange(days)) % 7
    office_day = _office_days(first, days)
    at = [(day - first).days for day, _ in preset.regimes]
    share = np.stack([np.interp(np.arange(days), at, row) for row in np.eye(len(at))])

    character = rng.normal(size=(counties, 7))
    noise = over_days(preset, first, days, lambda r: r.report_noise)[:, None]
    noise = noise * rng.normal(size=(days, counties))
    rate = over_days(preset, first, days, lambda r: r.backlog_rate)
    length = over_days(preset, first, days, lambda r: r.backlog_days)
    pace = np.where(_behind(rate, length, counties, rng), 0.1, 1.0)
    pace[_closed(preset, office_day, share, counties, rng)] = 0.0

    wanted = [np.array(regime.weekday) * 7 / sum(regime.weekday) for _, regime in preset.regimes]
    aim = [factors.copy() for factors in wanted]
    for _ in range(CYCLE_ROUNDS):
        weeks = [
            office_week(aim[i], regime, character, people)
            for i, (_, regime) in enumerate(preset.regimes)
        ]
        usual = sum(share[i, :, None] * week[:, office_day].T for i, week in enumerate(weeks))
        usual = np.clip(usual, 0.005, 0.985)
        chance = pace / (1 + (1 / usual - 1) * np.exp(-noise))
        flow = _cleared(chance, national.infections[:days]) @ people
        for i in range(len(aim)):
            pure = (share[i] == 1) & (np.arange(days) >= BURN_IN)
            if pure.sum() < 7:
                continue
            got = np.array([flow[pure & (weekday == day)].mean() for day in range(7)])
            aim[i] *= (wanted[i] / (got * 7 / got.sum())) ** 0.8
            aim[i] *= 7 / aim[i].sum()
    return np.asarray(chance)


def office_week(
    factors: Array, regime: Regime, character: Array, weight: NDArray[np.int64]
) -> Array:
    """Chances of Monday … Sunday in every office that give these weekday factors on average.

    With one case a day coming in and f reported, the desk holds B at the start of the day;
    reporting f of B + 1 is a chance of f / (B + 1).
    """
    wobble = character.copy()
    wobble[:, 5] = 0.8 * wobble[:, 6] + 0.6 * wobble[:, 5]
    factor = np.maximum(factors + np.array(regime.weekday_spread) * wobble, 0.02)
    for _ in range(10):
        factor *= factors / np.average(factor, axis=0, weights=weight)
        factor *= 7 / factor.sum(1, keepdims=True)
    left = np.cumsum(1 - factor, axis=1)
    left -= left.min(1, keepdims=True)
    before = np.roll(left, 1, axis=1)
    return np.asarray(np.clip(factor / (before + 1), 0.0, 1.0))


def _cleared(chance: Array, arriving: Array) -> Array:
    """Expected reports, by day and county, of what arrives on every desk alike."""
    desk = np.zeros(chance.shape[1])
    flow = np.empty_like(chance)
    for day, new in enumerate(arriving):
        desk += new
        flow[day] = desk * chance[day]
        desk -= flow[day]
    return flow


def _closed(
    preset: Preset,
    office_day: NDArray[np.int64],
    share: Array,
    counties: int,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Weekend days without any report; some authorities have them nearly always, most seldom."""
    rank = (rng.permutation(counties) + 0.5) / counties
    # One draw per week: an office that is closed on Saturday is closed on Sunday too.
    week = (office_day[0] + np.arange(len(office_day))) // 7
    luck = rng.random((week[-1] + 1, counties))[week]
    odds = np.zeros((len(office_day), counties))
    for i, (_, regime) in enumerate(preset.regimes):
        for day, mean in zip((5, 6), regime.closed, strict=True):
            habit = betaincinv(UNEVEN * mean, UNEVEN * (1 - mean), rank)
            odds[office_day == day] += share[i, office_day == day, None] * habit
    return np.asarray(luck < odds)


def _behind(
    rate: Array, length: Array, counties: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Days on which an authority is behind with its work."""
    behind = np.zeros((len(rate), counties), dtype=np.bool_)
    now = np.zeros(counties, dtype=np.bool_)
    for day in range(len(rate)):
        stays = now & (rng.random(counties) > 1 / max(length[day], 1.0))
        now = stays | (rng.random(counties) < rate[day])
        behind[day] = now
    return behind


def _office_days(first: date, days: int) -> NDArray[np.int64]:
    """The weekday as which offices work on each day: on holidays Sunday, on their eves Saturday."""
    dates = [first + timedelta(days=i) for i in range(days)]
    found = np.array([day.weekday() for day in dates])
    found[[day in holidays(day.year) for day in dates]] = 6
    found[[day.month == 12 and day.day in (24, 31) and day.weekday() < 5 for day in dates]] = 5
    return found


def holidays(year: int) -> frozenset[date]:
    """Days on which offices work as on a Sunday."""
    easter = _easter(year)
    fixed = [(1, 1), (5, 1), (10, 3), (12, 25), (12, 26)]
    return frozenset(
        [date(year, month, day) for month, day in fixed]
        + [easter + timedelta(days=shift) for shift in (-2, 1, 39, 50)]
    )


def _easter(year: int) -> date:
    """Easter Sunday of the years 1900 to 2099 (Gauss)."""
    d = (19 * (year % 19) + 24) % 30
    e = (2 * (year % 4) + 4 * (year % 7) + 6 * d + 5) % 7
    day = 22 + d + e
    if (d, e) == (29, 6) or ((d, e) == (28, 6) and year % 19 > 10):
        day -= 7
    return date(year, 3, 1) + timedelta(days=day - 1)
