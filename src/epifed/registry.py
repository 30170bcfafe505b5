"""Registries of named objects that are built in or come from other installed packages.

A package adds one by an entry point; this one adds the format `excel` to `epifed.data.readers`:

    [project.entry-points."epifed.readers"]
    excel = "my_package.excel:read_excel"
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from epifed.errors import EpifedError

Entry = TypeVar("Entry")


def _anything(_: object) -> bool:
    return True


class Registry(Generic[Entry]):
    """Objects of one kind by name; each is imported on first use.

    `group` is the group of entry points, `builtin` maps a name to its 'module:attribute'. `kind`
    is the first word of error messages. `old_names` are accepted but not listed. An object of
    another package must pass `fits`; else it is refused, and the message names `expected`.
    """

    def __init__(
        self,
        group: str,
        builtin: Mapping[str, str],
        *,
        old_names: Mapping[str, str] | None = None,
        kind: str | None = None,
        fits: Callable[[Any], bool] = _anything,
        expected: str = "something else",
    ) -> None:
        self.group = group
        self.kind = kind or group
        self._builtin = dict(builtin)
        self._old_names = dict(old_names or {})
        self._fits = fits
        self._expected = expected
        self._loaded: dict[str, Entry] = {}
        self._added: set[str] = set()

    def __repr__(self) -> str:
        """The group and its names."""
        return f"Registry({self.group}: {', '.join(self.names())})"

    def __contains__(self, name: object) -> bool:
        """Whether there is an object of this name, without importing it."""
        return any(
            name in names for names in (self._builtin, self._old_names, self._brought, self._added)
        )

    def __iter__(self) -> Iterator[str]:
        """The names in the order of `names`."""
        return iter(self.names())

    def names(self) -> tuple[str, ...]:
        """All names: the built-in ones in their order, then the others, sorted."""
        others = self._brought.keys() | self._added
        return (*self._builtin, *sorted(others - self._builtin.keys()))

    def is_builtin(self, name: str) -> bool:
        """Whether this package itself has an object of this name."""
        return name in self._builtin or name in self._old_names

    def load(self, name: str) -> Entry:
        """Import the object of this name; a missing, ambiguous or broken one raises an error."""
        name = self._old_names.get(name, name)
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def add(self, name: str, entry: Entry) -> None:
        """Add a named object in this process, as long as it runs.

        Worker processes and other machines find only installed objects.
        """
        self._loaded[name] = entry
        self._added.add(name)

    @contextmanager
    def using(self, name: str, entry: Entry) -> Iterator[None]:
        """Use an object under a name for a while, even in place of another."""
        loaded, added = dict(self._loaded), set(self._added)
        self.add(name, entry)
        try:
            yield
        finally:
            self._loaded, self._added = loaded, added

    def _load(self, name: str) -> Entry:
        brought = self._brought.get(name, ())
        owners = ["epifed"] * (name in self._builtin) + [_package(entry) for entry in brought]
        if not owners:
            raise EpifedError(
                f"{self.kind}: found '{name}'; expected one of {', '.join(self.names())}"
            )
        if len(owners) > 1:
            raise EpifedError(
                f"{self.kind}: found '{name}' in {len(owners)} installed packages "
                f"({', '.join(owners)}); expected it in one"
            )
        if not brought:
            module, attribute = self._builtin[name].split(":")
            built: Entry = getattr(import_module(module), attribute)
            return built
        return self._load_brought(name, brought[0])

    def _load_brought(self, name: str, entry: EntryPoint) -> Entry:
        where = f"{self.kind}: '{name}' of the package {_package(entry)}"
        try:
            loaded: Entry = entry.load()
        except Exception as error:
            reason = " ".join(str(error).split())
            raise EpifedError(
                f"{where}: found {entry.value}, which cannot be imported "
                f"({type(error).__name__}: {reason}); expected a package that works"
            ) from error
        if not self._fits(loaded):
            raise EpifedError(
                f"{where}: found {entry.value}, a {type(loaded).__name__}; "
                f"expected {self._expected}"
            )
        return loaded

    @cached_property
    def _brought(self) -> dict[str, tuple[EntryPoint, ...]]:
        """The entry points of the group by name; more than one where packages conflict."""
        brought: dict[str, tuple[EntryPoint, ...]] = {}
        for entry in entry_points(group=self.group):
            brought[entry.name] = (*brought.get(entry.name, ()), entry)
        return brought


def _package(entry: EntryPoint) -> str:
    return "without a name" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


LEARNERS: Registry[Any] = Registry(
    "epifed.learners",
    {
        "fedavg": "epifed.learners.fedavg:FedAvg",
        "one-shot": "epifed.learners.one_shot:OneShot",
        "trend": "epifed.learners.trend:Trend",
        "real-time": "epifed.learners.real_time:RealTimeTrend",
    },
    old_names={"nowcast": "real-time"},
    kind="learner",
    fits=lambda entry: isinstance(entry, type) and hasattr(entry, "contribute"),
    expected="a subclass of epifed.Learner",
)
"""The learners by name: subclasses of `epifed.learners.base.Learner`."""

MODELS: Registry[Any] = Registry(
    "epifed.models",
    {
        "mlp": "epifed.learners.networks:MLP",
        "linear": "epifed.learners.networks:Linear",
        "gru": "epifed.learners.networks:GRU",
    },
    kind="model",
    fits=callable,
    expected="a function of the window's length that returns a torch.nn.Module",
)
"""The networks by name: functions of the window's length."""

ACCOUNTANTS: Registry[Any] = Registry(
    "epifed.accountants",
    {
        "rdp": "epifed.privacy.accounting:Renyi",
        "pld": "epifed.privacy.accounting:LossDistribution",
        "gaussian": "epifed.privacy.accounting:GaussianFilter",
    },
    kind="accountant",
    fits=lambda entry: isinstance(entry, type) and hasattr(entry, "price"),
    expected="a class like epifed.privacy.accounting.Accountant",
)
"""The accountants by name: classes like `epifed.privacy.accounting.Accountant`."""
