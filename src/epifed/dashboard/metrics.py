"""The state of a federation as metrics for Prometheus."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from epifed.federation.overview import NOTICE_KINDS, WEEK_STATES, Overview

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(overview: Overview, seconds: float) -> bytes:
    """All metrics in Prometheus' text format; the look at the files took so many seconds."""

    class Once:
        def collect(self) -> Iterator[Metric]:
            yield from _general(overview, seconds)
            yield from _sites(overview)
            yield from _weeks(overview)
            yield from _budget(overview)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Once())
    found: bytes = generate_latest(registry)
    return found


def _general(seen: Overview, seconds: float) -> Iterator[Metric]:
    yield InfoMetricFamily(
        "epifed", "The federation and the version of epifed here",
        {"federation": seen.federation, "version": seen.version},
    )  # fmt: skip
    yield _gauge("look_timestamp_seconds", "When the state was read", seen.made.timestamp())
    yield _gauge("look_seconds", "Seconds that reading the state took", seconds)
    if seen.live:
        reached = "Whether the server answered when it was last asked"
        yield _gauge("server_reached", reached, float(seen.live.reached))
        asked = seen.live.asked.timestamp()
        yield _gauge("server_asked_timestamp_seconds", "When the server was last asked", asked)
    notices = GaugeMetricFamily(
        "epifed_notices", "Things that somebody should look at, or must", labels=["kind", "urgent"]
    )
    urgent: dict[str, bool] = {one.kind: one.urgent for one in seen.notices}
    for kind in NOTICE_KINDS:
        for level in (True, False):
            there = urgent.get(kind) is level
            notices.add_metric([kind, str(level).lower()], float(there))
    yield notices
    ends = GaugeMetricFamily(
        "epifed_certificate_end_timestamp_seconds", "When a certificate ends", labels=["party"]
    )
    for one in seen.certificates:
        ends.add_metric([one.party], one.ends.timestamp())
    yield ends


def _sites(seen: Overview) -> Iterator[Metric]:
    sites = GaugeMetricFamily("epifed_sites", "Sites by how they stand", labels=["state"])
    for state, number in seen.counted().items():
        sites.add_metric([state], number)
    yield sites
    versions = GaugeMetricFamily(
        "epifed_site_versions", "Sites by the version of epifed they say", labels=["version"]
    )
    for version, number in sorted(Counter(s.version for s in seen.sites if s.version).items()):
        versions.add_metric([version], number)
    yield versions
    refusals = CounterMetricFamily(
        "epifed_refusals", "How often a round was without a site, by the reason", labels=["code"]
    )
    counted = sum((Counter(one.codes) for one in seen.trainings), Counter[str]())
    for code in sorted(seen.reasons.keys() | counted.keys()):
        refusals.add_metric([code], counted[code])
    yield refusals


def _weeks(seen: Overview) -> Iterator[Metric]:
    yield _counter("releases", "Releases so far", len(seen.releases))
    if seen.trainings and seen.trainings[-1].done:
        last = seen.trainings[-1]
        yield _gauge("training_rounds", "Rounds asked for by the last training", last.rounds)
        done = last.done[-1].number
        yield _gauge("training_rounds_done", "Rounds done of the last training", done)
        if last.seconds is not None:
            yield _gauge("round_seconds", "Seconds between two rounds, in the middle", last.seconds)
    if seen.releases and (released := seen.releases[-1].release):
        moment = released.created.timestamp()
        yield _gauge("release_timestamp_seconds", "When the last release was made", moment)
    if week := seen.week:
        state = GaugeMetricFamily(
            "epifed_week_state", "How the week at hand stands", labels=["state"]
        )
        for name in WEEK_STATES:
            state.add_metric([name], float(week.state == name))
        yield state
        weeks = GaugeMetricFamily(
            "epifed_week_outcomes", "Weeks by what became of them", labels=["outcome"]
        )
        for outcome, number in (("done", week.done), ("skipped", week.skipped)):
            weeks.add_metric([outcome], number)
        yield weeks
        delay = "Seconds from the time of the week at hand to its last round"
        ran = [one for one in seen.trainings if one.name == week.name and one.done]
        if ran:
            took = (ran[-1].done[-1].time - week.due).total_seconds()
            yield _gauge("week_seconds", delay, took)
    came = [one for one in seen.worth if one.came is not None]
    like = sum(abs(one.like_today - (one.came or 0.0)) for one in came)
    if like:
        error = sum(abs(one.forecast - (one.came or 0.0)) for one in came) / like
        yield _gauge(
            "forecast_error_ratio",
            "Error of the releases' forecasts of the nation, like today = 1",
            error,
        )


def _budget(seen: Overview) -> Iterator[Metric]:
    budget = seen.budget
    if budget is None:
        return
    yield _gauge("epsilon_cap", "The budget's ε, at the ledger's δ", budget.epsilon)
    yield _gauge("delta", "The budget's δ", budget.delta)
    yield _gauge("epsilon_spent", "ε of everything released, composed", budget.spent)
    yield _gauge("epsilon_taken", "The same with what open trainings have reserved", budget.taken)
    yield _gauge("epsilon_left", "ε that is left", budget.left)
    yield _counter("rounds_paid", "Rounds that the ledger has paid for", budget.rounds)
    planned = [p.epsilon for p in budget.plan if p.day <= seen.made.date()]
    if budget.plan:
        spent = planned[-1] if planned else 0.0
        yield _gauge("epsilon_planned", "ε that the schedule would have spent by now", spent)
    if budget.weeks_fit is not None:
        yield _gauge("budget_releases", "Further weeks that the budget pays for", budget.weeks_fit)
    if budget.weeks_left is not None:
        yield _gauge("schedule_releases", "Weeks that the schedule still has", budget.weeks_left)
    healthy = "Whether the ledger is the newest that this machine knows"
    yield _gauge("ledger_ok", healthy, float(budget.fault is None))


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"epifed_{name}", meaning, value=value)


def _counter(name: str, meaning: str, value: float) -> Metric:
    return CounterMetricFamily(f"epifed_{name}", meaning, value=value)
