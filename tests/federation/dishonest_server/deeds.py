"""What a server may try with an aggregator's question, and how the aggregator must refuse it."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from epifed.federation.messages import Parts, pack_question, unpack_question
from epifed.settings import Settings

Deed = Callable[[Parts, list[Parts]], Parts]
"""A question, and those that the same aggregator got in the rounds before."""


def _told(**changes: Any) -> Deed:
    def deed(parts: Parts, _: list[Parts]) -> Parts:
        return parts | {"about": json.dumps(json.loads(parts["about"]) | changes)}

    return deed


def _clipped(parts: Parts, before: list[Parts]) -> Parts:
    text = json.loads(parts["about"])["settings"]
    return _told(settings=Settings.from_toml(text).but(clip_norm=0.001).to_toml())(parts, before)


def _reports(change: Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]) -> Deed:
    def deed(parts: Parts, before: list[Parts]) -> Parts:
        question = unpack_question(parts)
        old = unpack_question(before[-1]).reports if before else ()
        return pack_question(replace(question, reports=change(question.reports, old)))

    return deed


def _truncated(parts: Parts, _: list[Parts]) -> Parts:
    return parts | {"array": parts["array"][:-100]}


DEEDS: dict[str, tuple[str, Deed]] = {
    "doubled": ("doubled", _reports(lambda now, _: (*now, now[0]))),
    "forged": ("signature", _reports(lambda now, _: (replace(now[0], signature=bytes(64)),))),
    "foreign": ("foreign", _reports(lambda now, _: (replace(now[0], site="stranger"),))),
    "digests": ("digest", _reports(lambda now, _: (replace(now[0], share=now[1].share),))),
    "truncated": ("size", _truncated),
    "less noise": ("refused-epsilon", _told(noise_multiplier=1e-3)),
    "other c": ("signature", _told(noise_multiplier=1e3)),
    "other N": ("refused-roster", _told(enrolled=11)),
    "other S": ("signature", _clipped),
    "another training": ("signature", _told(training="another")),
    "nonsense": ("message", lambda _, __: {"about": "nonsense", "array": b""}),
}
"""What any aggregator refuses, by name: the reason, and the deed."""
LATER: dict[str, tuple[str, Deed]] = {
    "old report": ("signature", _reports(lambda now, old: (*now[1:], old[0]))),
}
"""What it refuses from the second round on."""
SECOND: dict[str, tuple[str, Deed]] = {
    "another cohort": ("reports", _reports(lambda now, _: now[1:])),
    "no word of the first": ("reports", _told(before=[])),
}
"""What the second one refuses."""
