"""A federation whose sites count weeks."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from epifed.cli.app import app
from tests.helpers import conforming

pytestmark = pytest.mark.field


def test_a_federation_on_weeks_makes_the_state_of_one_process(tmp_path: Path) -> None:
    settings = tmp_path / "weekly.toml"
    settings.write_text('learner = "trend"\nstep = "week"\nepsilon = 1.0\n')
    words = ["federation", "rehearse", "--sites", "2", "--clients", "8", "--json"]
    result = CliRunner().invoke(app, [*words, "--settings", str(settings)])
    assert result.exit_code == 0, result.output + str(result.exception)
    done = conforming("federation rehearse", json.loads(result.stdout))
    assert (done["sites_with_model"], done["clients"]) == (2, 8)
    assert 0.99 < done["epsilon"] <= 1.0
    assert done["largest_difference"] == 0
