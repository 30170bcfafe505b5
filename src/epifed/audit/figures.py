"""Pictures of an audit and of a membership attack."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from epifed.audit.audit import Audit
from epifed.audit.epsilon_bounds import Attack
from epifed.errors import EpifedError
from epifed.report import drawing
from epifed.report.tables import budget

WITHOUT, WITH = drawing.PERIOD_COLOURS[:2]


def two_distributions(audit: Audit) -> Figure:
    """The evidence in trainings with and without the canary: the more apart, the less private."""
    found = audit.many_runs
    if found is None:
        raise EpifedError("--out: the picture shows many runs; expected --method many-runs or both")
    both = np.concatenate([found.scores_without, found.scores_with])
    low, high = np.quantile(both, [0.002, 0.998])
    bins = np.linspace(low, high, 41).tolist()
    with drawing.style():
        figure, axes = plt.subplots(figsize=(6.4, 3.4))
        for scores, label, colour in (
            (found.scores_without, "canary did not take part", WITHOUT),
            (found.scores_with, "canary took part", WITH),
        ):
            axes.hist(
                np.clip(scores, low, high), bins=bins, density=True,
                alpha=0.5, color=colour, label=label,
            )  # fmt: skip
        axes.axvline(found.threshold, color="black", linewidth=1, label="the auditor's threshold")
        axes.set(
            xlabel="evidence that the canary took part (log likelihood ratio)",
            ylabel="density of trainings",
            title=f"claimed ε = {audit.claimed_epsilon:g}, measured ε ≥ {audit.lower_bound:.2f} "
            f"({audit.confidence:.0%} confidence): {'PASS' if audit.passed else 'FAIL'}",
        )
        axes.legend()
    return figure


def membership(attacks: Sequence[Attack]) -> Figure:
    """Right guesses of the attacker at each budget, below what the guarantee allows."""
    ordered = sorted(attacks, key=lambda a: a.epsilon)
    places = range(len(ordered))
    right = np.array([a.right for a in ordered])
    reach = np.array([[a.right - a.right_low, a.right_high - a.right] for a in ordered]).T
    with drawing.style():
        figure, axes = plt.subplots(figsize=(6.4, 3.6))
        axes.bar(places, 100 * right, width=0.5, color=[drawing.colour(a.epsilon) for a in ordered])
        axes.errorbar(places, 100 * right, yerr=100 * reach, fmt="none", color="black", capsize=3)
        for name, style, values in (
            ("the most that (ε, δ) allows", "solid", [a.allowed for a in ordered]),
            ("the most that this noise allows", (0, (1, 1)), [a.allowed_by_noise for a in ordered]),
        ):
            axes.add_collection(
                LineCollection(
                    [[(i - 0.38, 100 * v), (i + 0.38, 100 * v)] for i, v in enumerate(values)],
                    colors=WITH, linestyles=style, label=name,
                )
            )  # fmt: skip
        axes.axhline(50, color="black", linewidth=0.8)
        axes.text(len(ordered) - 0.5, 50.5, "coin toss", ha="right", va="bottom", fontsize=8)
        axes.set_xticks(list(places), [f"ε = {budget(a.epsilon)}" for a in ordered])
        axes.set(ylim=(40, 104), ylabel="right guesses (%)", title="Did this county take part?")
        axes.legend(loc="upper left")
    return figure
