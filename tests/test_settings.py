import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epifed.errors import EpifedError
from epifed.settings import Settings, read_settings, read_values


@given(
    epsilon=st.one_of(st.floats(0.01, 100), st.just(math.inf)),
    smoothing=st.sampled_from(["centered", "trailing", "none"]),
    rounds=st.integers(1, 500),
    history=st.one_of(st.none(), st.integers(10, 30)),
)
def test_settings_survive_toml(
    tmp_path_factory: pytest.TempPathFactory,
    epsilon: float, smoothing: str, rounds: int, history: int | None,
) -> None:  # fmt: skip
    settings = Settings.of(epsilon=epsilon, smoothing=smoothing, rounds=rounds, history=history)
    path = tmp_path_factory.mktemp("toml") / "s.toml"
    path.write_text(settings.to_toml(), encoding="utf-8")
    assert read_settings(path) == settings
    assert read_settings(path).digest() == settings.digest()


def test_the_paper_s_preset_holds_the_authors_facts() -> None:
    paper = Settings.paper()
    assert (paper.window, paper.horizon, paper.history, paper.min_windows) == (10, 7, 11, 11)
    assert (paper.own["epochs"], paper.rounds, paper.clients_per_round) == (30, 75, 100)
    assert (paper.clip_norm, paper.delta, paper.own["learning_rate"]) == (0.5, 1e-5, 0.001)
    assert paper.smoothing == "centered"
    assert Settings().smoothing == "trailing"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 0}, "epsilon: found 0; expected a number above 0: try 1"),
        ({"epsilon": -1.0}, "epsilon: found -1.0"),
        ({"epsilon": math.nan}, "epsilon: found nan"),
        ({"delta": 1.0}, "delta: found 1.0; expected a number below 1"),
        ({"sampler": "fixed"}, "expected 'poisson', because the accountant assumes it"),
        ({"smoothing": "left"}, "smoothing: found 'left'; expected 'centered'"),
        ({"rouns": 3}, "rouns: not a setting; expected one of smoothing, window"),
        ({"history": 5}, "history: found 5 days; expected at least the window of 10"),
        ({"rounds": "many"}, "rounds: found 'many'"),
        ({"train_share": 1.0}, "train_share: found 1.0; expected a number below 1"),
        ({"epochs": 0}, "epochs: found 0"),
        ({"learner": "trend", "epochs": 3}, "epochs: not a setting; expected one of smoothing"),
        ({"holidays": "DE"}, "holidays: not a setting; expected one of smoothing"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(changes: dict[str, object], words: str) -> None:
    with pytest.raises(EpifedError) as error:
        Settings.of(**changes)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epsilon = ", "expected TOML"),
        ("epsilon = -2", "epsilon: found -2"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "my.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(EpifedError, match=f"my.toml: .*{words}"):
        read_settings(path)


def test_a_learner_alone_brings_its_preset() -> None:
    settings = Settings.resolve(37, {"learner": "trend"})
    assert (settings.learner, settings.rounds, settings.clients_per_round) == ("trend", 1, 37)
    assert settings.own == {"holidays": "region", "modes": 0, "places": ()}
    assert settings == Settings.for_learner("trend", 37)
    nobody = Settings.resolve(37)
    assert (nobody.learner, nobody.clients_per_round, nobody.own["epochs"]) == ("fedavg", 9, 30)


def test_an_option_beats_the_file_and_the_file_beats_the_preset(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text('learner = "trend"\nclip_norm = 0.7\nholidays = "FR"\nepsilon = 1.0\n')
    resolved = Settings.resolve(37, read_values(path), {"holidays": "AT", "epsilon": 0.3})
    assert (resolved.epsilon, resolved.own["holidays"]) == (0.3, "AT")
    assert resolved.clip_norm == 0.7
    assert (resolved.rounds, resolved.accountant, resolved.clients_per_round) == (1, "pld", 37)
    assert Settings.resolve(37, read_values(path)).epsilon == 1.0


def test_the_preset_is_that_of_the_learner_with_the_last_word() -> None:
    resolved = Settings.resolve(12, {"learner": "trend"}, {"learner": "one-shot"})
    assert resolved == Settings.for_learner("one-shot", 12)
    model = Settings.resolve(12, {"rounds": 9}, {"model": "scale-free linear"})
    assert (model.rounds, model.clients_per_round, model.own["half_life"]) == (9, 12, 1.0)


def test_another_learner_starts_with_settings_of_its_own() -> None:
    paper = Settings.paper(epochs=3)
    assert paper.but(rounds=5).own["epochs"] == 3
    trend = paper.but(learner="trend")
    assert (trend.own["holidays"], trend.smoothing) == ("region", "centered")


def test_settings_are_frozen() -> None:
    with pytest.raises(Exception, match="frozen"):
        Settings().epsilon = 1.0  # type: ignore[misc]
