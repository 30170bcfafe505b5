"""Over loopback, with real processes: sites that would refuse cost nothing, and say by how much."""

from pathlib import Path

import pytest

from epifed.federation import site
from epifed.federation.flare.jobs import ask_parties
from epifed.federation.readiness import NotReadyError
from epifed.federation.terms import Terms
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.settings import Settings
from tests.federation.helpers import REGIONS, federation, plan
from tests.federation.parties import spent

pytestmark = pytest.mark.field


def test_a_training_that_all_sites_would_refuse_costs_nothing(tmp_path: Path) -> None:
    """As it once happened: terms of 2.0 counted by RDP, a training of 2.0 counted by PLD."""
    path = tmp_path / "budget.ledger"
    Ledger.create(path, Cap(10.0, 1e-5, "pld"))
    settings = Settings.for_learner("trend", REGIONS)
    with federation(tmp_path, 2, ledger=path, min_sites=2) as local:
        for name in ("site-1", "site-2"):
            (local.kit(name) / site.TERMS).write_text(Terms(accountant="rdp").to_toml())
        assert f"the server listens on port {local.federation.server.port}" in local.log("server")
        with pytest.raises(NotReadyError, match="0 of 2 sites would take part, 2 expected") as no:
            local.train(plan("refused", settings, seeded=False))
        assert "it counts ε = 2.1" in str(no.value)
        assert (spent(path), Ledger(path).book().taken()) == (0, ())
        (local.kit("site-1") / site.TERMS).write_text(Terms().to_toml())
        order = plan("refused", settings, seeded=False)
        rows = ask_parties(local.desk, local.federation, order)
        asked = {one.name: one.readiness.code for one in rows}
        assert asked == {"server": None, "site-1": None, "site-2": "refused-epsilon"}
        (local.kit("site-2") / site.TERMS).write_text(Terms().to_toml())
        status = local.train(order)
    assert (status["finished"], status["unused"], spent(path)) == (True, 0, 1)
