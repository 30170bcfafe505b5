"""What the tests share: where the real data is, if it is here."""

import os
import random
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Messages are English and tables 80 columns wide, also on a German machine or a narrow terminal,
# and parties on this machine are reached without a proxy.
OF_THE_USER = ("LANG", "LANGUAGE", "LC_MESSAGES", "COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR")
for name in [*OF_THE_USER, *(name for name in os.environ if name.lower().endswith("_proxy"))]:
    os.environ.pop(name, None)
os.environ["LC_ALL"] = "C.UTF-8"

with suppress(ModuleNotFoundError):  # many tests need no PyTorch
    import torch

    torch.set_num_threads(1)
settings.register_profile(
    "epifed",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("epifed")


LONGEST = (
    "test_runner",
    "test_kills",
    "test_audit",
    "test_docs",
    "test_aggregators",
    "test_federation",
    "test_network",
    "test_aggregator_checks",
)
"""Files that take minutes by themselves, most of them waiting, some computing."""


def _in_turn(items: list[pytest.Item]) -> None:
    """Those of the federation, which mostly wait, among the others, which do not; longest first.

    So there is always something for the processor to do, and no worker is left with a long one.
    """
    places = {name: place - len(LONGEST) for place, name in enumerate(LONGEST)}
    kinds: dict[bool, list[Path]] = {True: [], False: []}
    for path in dict.fromkeys(item.path for item in items):
        kinds[not {"federation", "rehearsal"}.isdisjoint(path.parts)].append(path)
    order = {
        path: places.get(path.stem, place / len(paths))
        for paths in kinds.values()
        for place, path in enumerate(paths)
    }
    items.sort(key=lambda item: order[item.path])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mix what waits with what computes."""
    _in_turn(items)


@pytest.fixture(scope="session", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What epifed must not forget, away from the user's own; processes that tests start inherit it.

    One for the session, since ledgers outlive a test.
    """
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EPIFED_STATE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def seeds() -> None:
    """The same draws for a test whatever ran before it; secure draws have no seed."""
    random.seed(0)
    if "torch" in sys.modules:
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The prepared directory: EPIFED_DATA, or shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    directory = Path(os.environ.get("EPIFED_DATA") or beside)
    if not (directory / "county_cases.parquet").is_file():
        pytest.skip(f"no real data: {directory} has no county_cases.parquet (set EPIFED_DATA)")
    return directory
