"""Shares add up to what was split, open for whom they were sealed to, and look like nothing."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from epifed.errors import EpifedError
from epifed.federation.crypto import (
    PublicKeys,
    ReportKey,
    SecretKeys,
    bound,
    expand,
    sealed_bytes,
    share,
    signed_by,
    split,
    to_bytes,
    words,
)

WHOLE = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20)
KEYS = SecretKeys.make()


@given(vector=WHOLE, parts=st.integers(2, 5))
def test_all_shares_add_up_to_the_vector_modulo_2_64(vector: list[int], parts: int) -> None:
    whole = np.array(vector, dtype=np.int64)
    shares = split(whole, parts)
    added = [0] * len(vector)
    for i, content in enumerate(shares):
        opened = share(content, len(vector), last=i == parts - 1)
        assert opened is not None
        added = [(a + int(b)) % 2**64 for a, b in zip(added, opened, strict=True)]
    assert added == [number % 2**64 for number in vector]


def test_a_seed_is_stretched_by_the_standard_s_chacha20() -> None:
    # RFC 8439, appendix A.1, test vector 1: the key stream of an all-zero key, nonce and counter.
    first = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28")
    assert to_bytes(expand(bytes(32), 2)) == first


def test_no_share_alone_tells_of_the_vector() -> None:
    for place in (0, 1):
        drawn = [share(split(np.full(50, 7), 2)[place], 50, last=place == 1) for _ in range(200)]
        content = b"".join(to_bytes(one) for one in drawn if one is not None)
        counts = np.bincount(np.frombuffer(content, dtype=np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-8  # false alarms of both: 2e-8


def test_a_seed_is_never_used_twice() -> None:
    assert len({split(np.zeros(3, dtype=np.int64), 2)[0] for _ in range(500)}) == 500


@settings(max_examples=20)
@given(content=st.binary(max_size=60), info=st.binary(max_size=20), other=st.binary(max_size=20))
def test_what_is_sealed_opens_for_its_holder_and_purpose_alone(
    content: bytes, info: bytes, other: bytes
) -> None:
    sealed = PublicKeys.of(KEYS.public.text).seal(content, info)
    assert KEYS.open(sealed, info) == content
    assert other == info or KEYS.open(sealed, other) is None
    assert SecretKeys.make().open(sealed, info) is None
    for changed in (sealed[:-1], sealed[1:], bytes([sealed[0] ^ 1]) + sealed[1:], b""):
        assert KEYS.open(changed, info) is None


@given(length=st.integers(1, 300), last=st.booleans(), fill=st.integers(-(2**62), 2**62))
@settings(max_examples=20)
def test_a_sealed_share_has_one_size(length: int, last: bool, fill: int) -> None:
    content = split(np.full(length, fill), 2)[int(last)]
    assert len(KEYS.public.seal(content, b"")) == sealed_bytes(length, last=last)


def test_keys_survive_their_file_which_its_owner_alone_can_read(tmp_path: Path) -> None:
    KEYS.write(tmp_path / "keys")
    assert (tmp_path / "keys").stat().st_mode & 0o077 == 0
    again = SecretKeys.read(tmp_path / "keys")
    assert again.public == KEYS.public
    assert again.open(KEYS.public.seal(b"x", b""), b"") == b"x"
    assert KEYS.public.signed(again.sign(b"x"), b"x")
    assert not KEYS.public.signed(again.sign(b"x"), b"y")
    with pytest.raises(EpifedError, match="cannot be made"):
        KEYS.write(tmp_path / "keys")
    key = ReportKey.make(tmp_path / "site")
    assert (tmp_path / "site").stat().st_mode & 0o077 == 0
    signature = ReportKey.read(tmp_path / "site").sign(b"x")
    assert signed_by(key.public, signature, b"x")
    assert not signed_by(key.public, signature, b"y")
    assert not signed_by("00" * 31, signature, b"x")
    (tmp_path / "short").write_text("00")
    with pytest.raises(EpifedError, match="expected a site's key, 32 bytes"):
        ReportKey.read(tmp_path / "short")


@pytest.mark.parametrize("text", ["", "AAAA", "not base64"])
def test_other_texts_are_no_public_keys(text: str) -> None:
    with pytest.raises(EpifedError, match="expected the public keys of an aggregator"):
        PublicKeys.of(text)


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_two_purposes_are_never_mixed_up(one: list[str], other: list[str]) -> None:
    assert (bound("a", *one) == bound("a", *other)) == (one == other)
    assert bound("a", *one) != bound("b", *one)


def test_words_survive_travel() -> None:
    numbers = np.array([0, 1, 2**64 - 1], dtype=np.uint64)
    assert words(to_bytes(numbers)).tolist() == numbers.tolist()


@pytest.mark.parametrize("content", [None, "no digits", "00", ""])
def test_a_key_that_cannot_be_read_is_one_sentence(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "report.key"
    if content is not None:
        path.write_text(content)
    with pytest.raises(EpifedError, match=r"report\.key: .*expected") as refusal:
        ReportKey.read(path)
    assert "\n" not in str(refusal.value)
