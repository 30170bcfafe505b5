"""What was known on each day of a backtest: on final counts, or on the mornings as they were."""

from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property

from epifed.anomalies import Cleaned, clean
from epifed.panel import CasePanel
from epifed.vintages import Vintages


@dataclass(frozen=True)
class Knowledge:
    """What was known on each day: the panel cut at it, or the list as of the next morning."""

    panel: CasePanel
    vintages: Vintages | None = None

    @cached_property
    def _cleaned(self) -> Cleaned:
        return clean(self.panel)

    def on(self, day: date) -> Cleaned:
        """What was known at the end of a day."""
        if self.vintages is None:
            return self._cleaned.until(day)
        return clean(self.vintages.as_known(day + timedelta(days=1), like=self.panel))
