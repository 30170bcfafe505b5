"""Plants a bug in the deployed code, and fails loudly where the code that it changes is gone."""

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from epifed.federation.messages import Parts
from epifed.federation.server import Post


class PlantingError(AssertionError):
    """A bug that was not planted: its target is gone, or the planted code never ran."""


class Overhearing(Post):
    """A post that hands a round's tasks and answers to a function before they arrive."""

    def __init__(self, post: Post, hear: Callable[[Any, Any], object]) -> None:
        self.post, self.hear = post, hear

    def sites(self, tasks: Any) -> Any:
        """The answers of the other post."""
        answers, problems = self.post.sites(tasks)
        self.hear(tasks, rows_in(answers))
        return answers, problems


def rows_in(answers: Mapping[str, Parts]) -> list[NDArray[np.float32]]:
    """The vectors in the answers of a round."""
    contents = {site: parts.get("array", b"") for site, parts in answers.items()}
    shapes = {site: json.loads(parts["about"]).get("shape") for site, parts in answers.items()}
    return [
        row
        for site, content in contents.items()
        for row in np.frombuffer(content, dtype=np.float32).reshape(shapes[site] or (0, 0))
    ]


class Planter:
    """Replaces parts of the deployed code for one test, and counts how often each one runs."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._runs: dict[str, int] = {}

    def setattr(self, target: Any, name: Any, value: Any = None) -> None:
        """Replace an attribute that exists; `target` is an object, or the attribute's full name."""
        if isinstance(target, str):
            where, _, attribute = target.rpartition(".")
            target, name, value = import_module(where), attribute, name
        place = f"{getattr(target, '__name__', target)}.{name}"
        if not hasattr(target, name):
            raise PlantingError(f"{place} is gone; expected the code in which the bug is planted")
        if getattr(target, name) is value:
            raise PlantingError(f"{place} stays as it is; expected a bug")
        self._patch.setattr(target, name, self._counted(place, value))

    def setenv(self, name: str, value: str) -> None:
        """Set a variable of the environment."""
        self._patch.setenv(name, value)

    def add(self, target: Any, name: str, value: Any) -> None:
        """Add an attribute that does not exist yet."""
        self._patch.setattr(target, name, value, raising=False)

    def refuse_unused(self) -> None:
        """Fail if nothing planted ever ran: then no check can have noticed it."""
        if self._runs and not any(self._runs.values()):
            places = ", ".join(sorted(self._runs))
            raise PlantingError(f"{places} never ran; expected the bug to be executed")

    def _counted(self, place: str, value: Any) -> Any:
        """The same value; a function, or a property's, that notes its calls."""
        if isinstance(value, property) and value.fget is not None:
            return property(self._noting(place, value.fget))
        if isinstance(value, classmethod):
            return classmethod(self._noting(place, value.__func__))
        if isinstance(value, type) or not callable(value):
            return value
        return self._noting(place, value)

    def _noting(self, place: str, function: Callable[..., Any]) -> Callable[..., Any]:
        self._runs.setdefault(place, 0)

        def noted(*arguments: Any, **options: Any) -> Any:
            self._runs[place] += 1
            return function(*arguments, **options)

        return noted


Plant = Callable[[Planter], None]
