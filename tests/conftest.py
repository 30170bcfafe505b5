"""What the tests share: where the real data is, if it is here."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
settings.register_profile(
    "epifed", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50
)
settings.load_profile("epifed")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The prepared directory: EPIFED_DATA, or shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    directory = Path(os.environ.get("EPIFED_DATA") or beside)
    if not (directory / "county_cases.parquet").is_file():
        pytest.skip(f"no real data: {directory} has no county_cases.parquet (set EPIFED_DATA)")
    return directory
