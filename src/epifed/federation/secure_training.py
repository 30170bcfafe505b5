"""A training with aggregators: the server relays encrypted reports and adds up partial sums.

The reports of a round are on disk and charged before any aggregator is asked. Aggregators are asked
in turn; each gets the statements of those before it, so all add up the same reports. After a crash
the same question gets the same bytes. Each round's release is compared with those of earlier weeks.
An unusual one is reported, so that somebody checks it before forecasting.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from epifed.errors import EpifedError, counted
from epifed.federation.evidence import close_round
from epifed.federation.messages import (
    MOST_EVIDENCE,
    SENTENCES,
    Code,
    Delivery,
    Evidence,
    MessageError,
    PartialSum,
    Parts,
    Question,
    Relayed,
    Report,
    RoundTerms,
    Task,
    accept_partial,
    accept_report,
    evidence_bytes,
    pack_question,
    pack_report,
    pack_sums,
)
from epifed.federation.server import ORDER, Order, Post, Problem, StoredTraining
from epifed.federation.server import Report as RoundReport
from epifed.federation.terms import Federation
from epifed.files import save_part, write_atomic, write_text
from epifed.learners.base import Vector
from epifed.ledger.ledger import Ledger
from epifed.privacy.noise import SeededRandomness
from epifed.settings import of_training

RELEASED = "released"
LEAST_WEEKS, MOST_WEEKS = 4, 12
"""Fewest earlier trainings for a comparison, and the most that are used."""
FAR = 6.0
"""A number more than this many deviations from the median of earlier ones is unusual."""
LEAST_SPREAD = 0.05
"""Deviation that is always expected, relative to the clip norm; added in squares."""
MOST_NUMBERS = 64
"""For a longer vector, only the norm is compared."""


def keep(folder: Path, number: int, released: NDArray[np.float64]) -> None:
    """Store a round's released vector, or its norm if it is long, for later comparisons."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.save(file, _compared(released))

    (folder / RELEASED).mkdir(exist_ok=True)
    write_atomic(folder / RELEASED / f"{number}.npy", write)


def unlike(
    folder: Path,
    order: Order,
    number: int,
    released: NDArray[np.float64],
    noise_std: float,
) -> bool:
    """Whether a release is far from those of the same round of similar earlier trainings.

    Those lie beside it, with the same learner and clip norm and an earlier last day.
    """
    now = _compared(released)
    weeks = [week for week in _weeks(folder, order, number) if week.shape == now.shape]
    if len(weeks) < LEAST_WEEKS:
        return False
    before = np.stack(weeks[-MOST_WEEKS:])
    middle = np.median(before, axis=0)
    usual = 1.4826 * np.median(np.abs(before - middle), axis=0)
    spread = np.sqrt(usual**2 + noise_std**2 + (LEAST_SPREAD * order.settings.clip_norm) ** 2)
    return bool((np.abs(now - middle) > FAR * spread).any())


def _compared(released: NDArray[np.float64]) -> NDArray[np.float64]:
    return released if len(released) <= MOST_NUMBERS else np.array([np.linalg.norm(released)])


def _weeks(folder: Path, order: Order, number: int) -> list[NDArray[np.float64]]:
    """The vectors that the same round of earlier trainings released, oldest first.

    A file that cannot be read, for example from another version of epifed, is ignored.
    """
    earlier = []
    for path in folder.parent.glob(f"*/{RELEASED}/{number}.npy"):
        try:
            other = Order.from_json((path.parents[1] / ORDER).read_text(encoding="utf-8"))
            released = np.load(path, allow_pickle=False)
        except (OSError, ValueError, KeyError, EpifedError):
            continue
        same = (other.settings.learner, other.settings.clip_norm, other.seeded) == (
            order.settings.learner,
            order.settings.clip_norm,
            order.seeded,
        )
        if same and other.last_day < order.last_day:
            earlier.append((other.last_day, other.training, released))
    return [week for _, _, week in sorted(earlier, key=lambda entry: entry[:2])]


REPORTS, SPOILERS = "reports.npz", "spoilers.json"
SUMS, FIRST = "sums", "terms.json"
"""The aggregators' signed sums, a file for each round, and the terms of the first round."""


class AwayError(Exception):
    """An aggregator does not answer: the round waits for it."""


@dataclass(frozen=True)
class Collected:
    """The accepted reports of a round, and the problems of other sites."""

    terms: RoundTerms
    reports: tuple[Report, ...]
    problems: list[Problem]


def collect(
    answers: Mapping[str, Parts], terms: RoundTerms, signs: Mapping[str, str]
) -> tuple[list[Report], list[Problem]]:
    """The valid reports among the answers, and the problems of the others."""
    reports, problems = [], []
    for site, parts in sorted(answers.items()):
        try:
            reports.append(accept_report(parts, terms, site, signs.get(site)))
        except MessageError as error:
            problems.append(Problem(site, error.code))
    return reports, problems


def question_of(
    terms: RoundTerms, name: str, reports: tuple[Report, ...], before: list[PartialSum]
) -> Question:
    """The question to an aggregator: its own share of each report, and the statements before it."""
    place = len(terms.before(name))
    relayed = tuple(Relayed(r.site, r.digests, r.signature, r.shares[place]) for r in reports)
    return Question(terms, name, relayed, tuple(partial.statement for partial in before))


class SecureTraining(StoredTraining):
    """A training whose aggregators add up sealed reports and add the noise."""

    noise = "aggregators"

    def __init__(
        self, folder: Path, federation: Federation, order: Order, ledger: Ledger | None
    ) -> None:
        super().__init__(folder, federation, order, ledger)
        size = evidence_bytes(self.plan.aggregators, self.rounds.length, self.settings.rounds)
        if size > MOST_EVIDENCE:
            raise EpifedError(
                f"rounds: found {self.settings.rounds} of {self.rounds.length:,} numbers, whose "
                f"signed sums take {size / 2**20:,.0f} MB; expected at most "
                f"{MOST_EVIDENCE / 2**20:,.0f} MB, which every party is given to check the release"
            )
        if 0 < self.done < self.settings.rounds and self._first() is None:
            raise EpifedError(
                f"training '{order.training}': found rounds without the aggregators' signed sums, "
                "of an earlier version of epifed; expected another name: start it anew"
            )

    def delivery(self) -> Delivery:
        """The release, and the signed sums from which each party computes it again."""
        first = self._first()
        if first is None:
            return super().delivery()
        numbers = range(1, self.settings.rounds + 1)
        sums = b"".join((self.folder / SUMS / str(number)).read_bytes() for number in numbers)
        return replace(super().delivery(), evidence=Evidence(first, sums))

    def _keep_sums(self, terms: RoundTerms, sums: list[PartialSum]) -> None:
        """Store the signed sums of a round, for those who check the release."""
        (self.folder / SUMS).mkdir(exist_ok=True)
        content = pack_sums(sums)
        write_atomic(
            self.folder / SUMS / str(terms.round), lambda temporary: temporary.write_bytes(content)
        )
        if terms.round == 1:
            write_text(self.folder / SUMS / FIRST, json.dumps(terms.agreed))

    def _first(self) -> RoundTerms | None:
        """The terms of the first round; None before it is done."""
        path = self.folder / SUMS / FIRST
        return RoundTerms.of(json.loads(path.read_text())) if path.exists() else None

    def _least(self) -> int:
        """The fewest sites of a sum: as in the first round, even if the roster has changed."""
        first = self._first()
        return first.least if first else self.federation.min_sites

    def _refuse_other_terms(self, terms: RoundTerms, state: Vector) -> None:
        """Refuse a round whose terms differ from the first one's: its sums would be no evidence."""
        first = self._first()
        if first and first.in_round(terms.round, state) != terms:
            raise EpifedError(
                f"training '{self.order.training}': found other keys of its aggregators, or noise, "
                "than in its first round; expected the same to its end, or another name"
            )

    def play(self, post: Post, report: RoundReport) -> None:
        """Run one round: collect sealed reports, charge it, and combine the partial sums."""
        number = self.done + 1
        collected = self._stored(number) or self._collect(number, post)
        problems = list(collected.problems)
        if self.paid < number:
            self._pay(number)
        try:
            sums = self._ask(collected, post, problems)
        except EpifedError:
            report(self.line(number, problems))
            raise
        spoilers = sorted({site for partial in sums for site in partial.unopened})
        problems += [Problem(site, Code.SEALED) for site in spoilers]
        closed = close_round(collected.terms, sums, self.rounds, self.state)
        if closed.released is not None:
            if unlike(self.folder, self.order, number, closed.released, self.plan.noise_std(0)):
                problems.append(Problem("all", Code.UNUSUAL))
            keep(self.folder, number, closed.released)
        elif closed.code:
            problems.append(Problem("all", closed.code))
        self._avoid(spoilers)
        self._keep_sums(collected.terms, sums)
        self._wait(number, closed.state, self.paid - 1, int(closed.released is None))
        self._save()
        (self.folder / REPORTS).unlink(missing_ok=True)
        report(self.line(number, problems))

    def _collect(self, number: int, post: Post) -> Collected:
        """Ask the sites, and store their reports until the round is over."""
        terms, tasks = self._asked(number, post.keys())
        answers, problems = post.sites(tasks)
        avoided = self._avoided()
        wanted = {site: parts for site, parts in answers.items() if site not in avoided}
        reports, wrong = collect(wanted, terms, self.federation.signs)
        problems = [
            *problems,
            *wrong,
            *(Problem(site, Code.SEALED) for site in sorted(avoided & answers.keys())),
        ]
        self._refuse_spoiled(avoided)
        self._refuse_too_few(len(reports), problems)
        collected = Collected(terms, tuple(reports), problems)
        self._store(collected)
        return collected

    def _refuse_spoiled(self, avoided: set[str]) -> None:
        """Raise if too few sites remain without those whose reports cannot be opened."""
        left = len(self.federation.sites) - len(avoided)
        if left < self.federation.min_sites:
            raise EpifedError(
                f"training '{self.order.training}': {', '.join(sorted(avoided))} sent what no "
                f"aggregator can open and are left out; found {counted(left, 'site')} without "
                f"them, expected {self.federation.min_sites}: mend or remove them, and start a "
                "new training"
            )

    def _ask(self, collected: Collected, post: Post, problems: list[Problem]) -> list[PartialSum]:
        """The aggregators' partial sums, in the roster's order; raises if one of them refuses."""
        sums: list[PartialSum] = []
        for name, _ in collected.terms.aggregators:
            question = question_of(collected.terms, name, collected.reports, sums)
            answer = post.aggregator(name, pack_question(question))
            if answer is None:
                raise AwayError(name)
            try:
                sums.append(accept_partial(answer, question))
            except MessageError as error:
                problems.append(Problem(name, error.code))
                raise EpifedError(
                    f"training '{self.order.training}': round {collected.terms.round} was refused "
                    f"by the aggregator '{name}' ({error.code.value}): {SENTENCES[error.code]}"
                ) from None
        return sums

    def _asked(self, number: int, keys: Mapping[str, str]) -> tuple[RoundTerms, dict[str, Task]]:
        """The terms of a round, and the task of each site."""
        names = [aggregator.name for aggregator in self.federation.aggregators]
        if self.plan.aggregators != len(names):
            raise EpifedError(
                f"aggregators: found {self.plan.aggregators} in the settings and {len(names)} in "
                "the roster; expected the same"
            )
        if missing := [name for name in names if name not in keys]:
            raise AwayError(missing[0])
        state = self.rounds.learner.pack(self.state)
        terms = self._terms(
            number,
            state,
            paid=number - 1,
            least=self._least(),
            aggregators=tuple((name, keys[name]) for name in names),
        )
        self._refuse_other_terms(terms, state)
        return terms, self._tasks(terms, state, self._predictable(number))

    def _predictable(self, number: int) -> set[str] | None:
        """The public cohort of a test's round; None for a training with secure randomness."""
        if not self.order.seeded:
            return None
        _, sampling, noise = of_training(self.settings.seed)
        randomness = SeededRandomness(sampling, noise)
        cohorts = [randomness.sample(self.plan) for _ in range(number)]
        return {self.federation.clients[k] for k in cohorts[-1]}

    def _store(self, collected: Collected) -> None:
        about = {
            "terms": collected.terms.agreed,
            "sites": [report.site for report in collected.reports],
            "problems": [[p.site, p.code.value] for p in collected.problems],
        }
        packed = (pack_report(collected.terms, report)["array"] for report in collected.reports)
        content = np.frombuffer(b"".join(packed), dtype=np.uint8)
        save_part(self.folder / REPORTS, {"about": np.array(json.dumps(about)), "content": content})

    def _stored(self, number: int) -> Collected | None:
        """The stored reports of a round that was begun; None if they are of another round."""
        path = self.folder / REPORTS
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as stored:
            about, content = json.loads(str(stored["about"])), stored["content"].tobytes()
        terms = RoundTerms.of(about["terms"])
        if terms.round != number:
            return None
        answer = json.dumps({"training": terms.training, "round": terms.round})
        size = len(content) // max(1, len(about["sites"]))
        reports = tuple(
            accept_report(
                {"about": answer, "array": content[i * size : (i + 1) * size]},
                terms,
                site,
                self.federation.signs.get(site),
            )
            for i, site in enumerate(about["sites"])
        )
        problems = [Problem(site, Code(code)) for site, code in about["problems"]]
        return Collected(terms, reports, problems)

    def _avoided(self) -> set[str]:
        """Sites that signed a share which cannot be opened: their reports are not relayed again."""
        path = self.folder / SPOILERS
        return set(json.loads(path.read_text())) if path.exists() else set()

    def _avoid(self, sites: list[str]) -> None:
        if sites:
            write_text(self.folder / SPOILERS, json.dumps(sorted(self._avoided() | set(sites))))
