"""What any forecast must beat, on the same windows: from "like today" to a regression."""

import numpy as np

from epifed.clients import Clients
from epifed.errors import EpifedError
from epifed.learner import Baseline, Floats, make_learner
from epifed.settings import Settings

DAMPING = 0.3
"""Share of the week's local growth that the damped trend lets go on."""


def persistence(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """Next week is like today: the last value of the window."""
    del settings, seeds
    return clients.test.inputs[..., -1].astype(np.float64)


def damped_trend(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """The last value, carried on by a damped share of its log growth over the window."""
    del seeds
    inputs = clients.test.inputs.astype(np.float64)
    days = inputs.shape[-1] - 1
    if days == 0:
        return inputs[..., -1]
    growth = np.log((inputs[..., -1] + 1) / (inputs[..., 0] + 1)) / days
    prediction: Floats = inputs[..., -1] * np.exp(DAMPING * settings.horizon * growth)
    return prediction


def pooled_linear(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """Least squares on the training windows of all clients together: no privacy at all."""
    del settings, seeds
    design, targets = clients.train.pooled()
    coefficients = np.linalg.lstsq(_with_intercept(design), targets, rcond=None)[0]
    prediction: Floats = _with_intercept(clients.test.inputs.astype(np.float64)) @ coefficients
    return prediction


def predict_zero(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """No cases: right more often than not where regions are small, and worth nothing."""
    del settings, seeds
    return np.zeros(clients.test.targets.shape)


def county_share(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """The share of the population in what its county had on the last day of the window."""
    del settings, seeds
    if not clients.parents or clients.population is None:
        raise EpifedError("county share: found no counties above the regions; expected communities")
    if (clients.test.target_days != clients.test.target_days[0]).any():
        raise EpifedError("county share: found windows out of step; expected the temporal split")
    _, county = np.unique(clients.parents, return_inverse=True)
    last = clients.test.inputs[..., -1].astype(np.float64)
    of_county = np.zeros((county.max() + 1, last.shape[1]))
    np.add.at(of_county, county, last)
    share = clients.population / np.bincount(county, weights=clients.population)[county]
    prediction: Floats = share[:, None] * of_county[county]
    return prediction


BASELINES: dict[str, Baseline] = {
    "persistence": persistence,
    "damped trend": damped_trend,
    "pooled linear": pooled_linear,
}
COMMUNITY_BASELINES: dict[str, Baseline] = {"zero": predict_zero, "county share": county_share}


def beside(settings: Settings, *, communities: bool) -> tuple[str, ...]:
    """The baselines that mean something beside a training with these settings."""
    more = COMMUNITY_BASELINES if communities else {}
    return (*BASELINES, *make_learner(settings).beside(), *more)


def baseline(name: str, settings: Settings) -> Baseline:
    """The baseline of that name."""
    every = BASELINES | COMMUNITY_BASELINES
    return every[name] if name in every else make_learner(settings).beside()[name]


def random_baselines(settings: Settings) -> frozenset[str]:
    """Those that depend on the seed: what a learner has of its own."""
    return frozenset(make_learner(settings).beside())


def _with_intercept(inputs: Floats) -> Floats:
    return np.concatenate([inputs, np.ones((*inputs.shape[:-1], 1))], axis=-1)
