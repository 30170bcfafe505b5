"""The weeks of a schedule as trainings of a federation that is connected."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from epifed.errors import EpifedError
from epifed.federation.flare.jobs import Desk, look, run_training
from epifed.federation.roster import Federation
from epifed.federation.server import Order
from epifed.federation.weekly import Schedule, Week
from epifed.ledger.ledger import Ledger
from epifed.settings import Settings


@dataclass
class Trainings:
    """What runs a week: one training of it, at the coordinator's desk."""

    desk: Desk
    roster: Federation
    schedule: Schedule
    settings: Settings
    ledger: Ledger
    say: Callable[[str], object]
    finished: Callable[[dict[str, Any]], object] = lambda _: None
    """Told the status of each training that has come to its end."""

    def rival(self, week: Week) -> str | None:
        """Another training of the same week that was paid for."""
        runs = self.ledger.book().runs.values()
        paid = [run.training for run in runs if run.spent and run.training]
        return next((name for name in paid if week.same(name)), None)

    def give_back(self, week: Week) -> None:
        """Close a run of which no round was spent, so that it holds no budget."""
        run = self.ledger.book().named(week.name)
        if run is not None and run.outcome == "open" and not run.spent:
            self.ledger.close(run.run, "abandoned", note="the week was skipped")

    def connected(self) -> Collection[str]:
        """The sites that are there; none while the server is away."""
        try:
            there = look(self.desk)["connected"]
        except Exception as error:  # FLARE's own have no common base
            self.say(f"the server does not answer: {error}")
            return set()
        return {site.name for site in self.roster.sites} & set(there)

    def train(self, week: Week) -> None:
        """The week's training, to its end."""
        order = Order.of(week.name, self.settings, *self.schedule.period(week))
        told = set[str]()

        def watch(status: dict[str, Any]) -> None:
            reason = status.get("waiting")
            if reason and reason not in told:
                told.add(reason)
                self.say(f"{week.name} waits: {reason}")

        status = run_training(self.desk, self.roster, order, watch)
        if not status["finished"]:
            raise EpifedError(f"{week.name}: stopped; start the schedule again to go on")
        self.finished(status)
