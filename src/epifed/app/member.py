"""A member of a federation: its newest release, this week's training, what would be sent.

Reading this sends nothing and spends nothing. The office's own forecast is made as the service of
`epifed federation site` makes it, into the same folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

from epifed.errors import EpifedError
from epifed.federation.answers import MODELS
from epifed.federation.site import LastAsked, Source, hosted_clients, preview, remembered, this_week
from epifed.files import read_json
from epifed.privacy.accounting import rounded_up
from epifed.settings import Settings
from epifed.site_report import LATEST, REPORT, STATUS, update_site
from epifed.training.release import Release, read_release

MOST_NUMBERS = 2000
"""Numbers of a vector that the page shows."""


@dataclass
class Member:
    """The site of a kit, as the page shows it."""

    kit: Path
    out: Path
    """The folder of its own forecasts."""
    model_name: str
    sent: dict[str, Any] | None = field(default=None)
    """The preview, once it was asked for."""

    def to_dict(self) -> dict[str, Any]:
        """How things stand, from the files of the kit alone."""
        asked, newest = LastAsked.of(self.kit), self._newest()
        status = self._status()
        return {
            "site": self.kit.name,
            "clients": list(hosted_clients(self.kit)),
            "release": None if newest is None else _release_dict(*newest),
            "asked": None if asked is None else _asked_dict(asked),
            "preview": self.sent,
            "own": {
                "week": status.get("week"),
                "made": bool(status.get("made")),
                "last_day": status.get("last_day"),
            },
            "problems": list(status.get("problems", ())),
        }

    def look_ahead(self, source: Mapping[str, Any] | None, today: date | None = None) -> None:
        """What would be sent for this week's training, to the number; nothing is."""
        asked = LastAsked.of(self.kit)
        if asked is None:
            raise EpifedError(
                "found no training that this site was asked for yet; expected one, so that its "
                "settings are known"
            )
        chosen = remembered(self.kit)
        if chosen is None and source is not None:
            chosen = Source(source["path"], None, dict(source["options"]))
        if chosen is None:
            raise EpifedError("found no case data in the kit; expected a file on this page")
        period = this_week(asked, today or datetime.now().date())
        settings = Settings.from_toml(asked.settings)
        sent = preview(self.kit, settings, period, asked.enrolled, source=chosen).to_dict()
        numbers = {client: row[:MOST_NUMBERS] for client, row in sent["vectors"].items()}
        days = {name: str(sent[name]) for name in ("first_day", "last_day")}
        self.sent = sent | days | {"vectors": numbers}

    def make_own(self) -> None:
        """The office's own forecast of the newest week, where it is not made yet."""
        update_site(self.kit, self.out, self.model_name)

    def report(self) -> tuple[str, Path]:
        """The newest week that has a report, and that report."""
        path = self.out / LATEST / REPORT
        if not path.is_file():
            raise EpifedError("found no report of a week yet; expected the forecast made before")
        return str(self._status().get("week") or "week"), path

    def _status(self) -> dict[str, Any]:
        path = self.out / STATUS
        return read_json(path, "expected the status of a site") if path.is_file() else {}

    def _newest(self) -> tuple[str, Release] | None:
        """The newest release that the site holds, with the name of its training."""
        found = []
        for path in (self.kit / MODELS).glob("*.epifed"):
            try:
                found.append((path.stem, read_release(path)))
            except EpifedError:
                continue  # a damaged file is no release; the service reports it
        return max(found, key=lambda one: (one[1].last_day, one[1].created), default=None)


def _release_dict(training: str, release: Release) -> dict[str, Any]:
    return {
        "training": training,
        "first_day": str(release.first_day),
        "last_day": str(release.last_day),
        "epsilon": rounded_up(release.epsilon),
        "epsilon_without_amplification": None
        if release.epsilon_without_amplification == release.epsilon
        else rounded_up(release.epsilon_without_amplification),
        "accountant": release.accountant,
        "delta": f"{release.delta:g}",
        "secure": release.randomness == "secure",
        "sentence": release.sentence(),
    }


def _asked_dict(asked: LastAsked) -> dict[str, Any]:
    return {
        "training": asked.training,
        "first_day": asked.first_day,
        "last_day": asked.last_day,
        "enrolled": asked.enrolled,
        "sent": asked.sent,
        "problem": asked.problem or None,
        "left_out": dict(asked.left_out),
    }
