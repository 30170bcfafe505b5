"""Shares that no party can read alone: split, sealed to an aggregator, signed by the site.

A vector of whole numbers becomes k shares that add up to it modulo 2^64. Any k - 1 of them are
uniformly random. All but the last are 32-byte seeds, stretched by ChaCha20. Each is sealed with
HPKE (RFC 9180; ML-KEM-768 and X25519 together, so that both must break) and signed with Ed25519.
All cryptography is that of the package `cryptography`.
"""

import base64
import hashlib
import json
import os
import secrets
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)
from numpy.typing import NDArray

from epifed.errors import EpifedError

Words = NDArray[np.uint64]
"""Numbers modulo 2^64."""

SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
SEED = 32
DIGEST = 32
SIGNATURE = 64
_WORD = np.dtype("<u8")
_TAG = 16
_LENGTHS = {"kem": 1184, "x25519": 32, "ed25519": 32}


def split(vector: NDArray[np.int64], parts: int) -> list[bytes]:
    """Shares of a vector as bytes: random seeds, and last the vector minus the expanded seeds."""
    seeds = [secrets.token_bytes(SEED) for _ in range(parts - 1)]
    rest = vector.astype(np.int64).view(np.uint64).copy()
    for seed in seeds:
        rest -= expand(seed, vector.size)
    return [*seeds, to_bytes(rest)]


def expand(seed: bytes, length: int) -> Words:
    """Expand a seed to its share: `length` words of the ChaCha20 key stream.

    The nonce may be constant because a seed is used once.
    """
    stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor()
    return words(stream.update(bytes(_WORD.itemsize * length)))


def share(content: bytes, length: int, *, last: bool) -> Words | None:
    """The share that these bytes encode, or None if their length is wrong."""
    if len(content) != share_bytes(length, last=last):
        return None
    return words(content) if last else expand(content, length)


def share_bytes(length: int, *, last: bool) -> int:
    """The number of bytes of a share before it is sealed."""
    return _WORD.itemsize * length if last else SEED


def sealed_bytes(length: int, *, last: bool) -> int:
    """The number of bytes of a sealed share, which does not depend on its content."""
    return KEM.MLKEM768_X25519.enc_length() + share_bytes(length, last=last) + _TAG


def to_bytes(numbers: Words) -> bytes:
    """Words as little-endian bytes."""
    return numbers.astype(_WORD).tobytes()


def words(content: bytes) -> Words:
    """Words from little-endian bytes."""
    return np.frombuffer(content, dtype=_WORD).astype(np.uint64)


def digest(content: bytes) -> bytes:
    """SHA-256 of the content, as 32 bytes."""
    return hashlib.sha256(content).digest()


def bound(purpose: str, *parts: str | bytes) -> bytes:
    """Unambiguous encoding of a purpose and its parts, which is signed or bound to a seal."""
    texts = [part if isinstance(part, str) else part.hex() for part in parts]
    return json.dumps(["epifed", 1, purpose, *texts], separators=(",", ":")).encode()


@dataclass(frozen=True)
class PublicKeys:
    """The public keys of an aggregator: one to seal shares to, one to verify its signatures."""

    content: bytes

    @classmethod
    def of(cls, text: str) -> "PublicKeys":
        """Decode the keys from base64; raises `EpifedError` if they are not valid."""
        try:
            keys = cls(base64.b64decode(text, validate=True))
            if len(keys.content) != sum(_LENGTHS.values()):
                raise ValueError
            keys._sealing, keys._signing  # noqa: B018
        except ValueError:
            raise EpifedError("expected the public keys of an aggregator") from None
        return keys

    @property
    def text(self) -> str:
        """The keys as base64."""
        return base64.b64encode(self.content).decode()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the keys, which parties exchange by telephone and pin."""
        return "SHA256:" + digest(self.content).hex(":").upper()

    def seal(self, content: bytes, info: bytes) -> bytes:
        """Encrypt bytes so that only the secret keys open them, and only with the same `info`."""
        return SUITE.encrypt(content, self._sealing, info)

    def signed(self, signature: bytes, content: bytes) -> bool:
        """Whether the holder of the secret keys signed this content."""
        return _verified(self._signing, signature, content)

    @cached_property
    def _sealing(self) -> MLKEM768X25519PublicKey:
        kem, dh = _LENGTHS["kem"], _LENGTHS["kem"] + _LENGTHS["x25519"]
        return MLKEM768X25519PublicKey(
            MLKEM768PublicKey.from_public_bytes(self.content[:kem]),
            X25519PublicKey.from_public_bytes(self.content[kem:dh]),
        )

    @cached_property
    def _signing(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self.content[-_LENGTHS["ed25519"] :])


class SecretKeys:
    """The secret keys of an aggregator, which never leave its machine."""

    def __init__(
        self, kem: MLKEM768PrivateKey, dh: X25519PrivateKey, signing: Ed25519PrivateKey
    ) -> None:
        self._sealing, self._signing = MLKEM768X25519PrivateKey(kem, dh), signing
        self._content = b"".join(key.private_bytes_raw() for key in (kem, dh, signing))
        public = (key.public_key().public_bytes_raw() for key in (kem, dh, signing))
        self.public = PublicKeys(b"".join(public))

    @classmethod
    def make(cls) -> "SecretKeys":
        """Generate new keys."""
        keys = MLKEM768PrivateKey.generate(), X25519PrivateKey.generate()
        return cls(*keys, Ed25519PrivateKey.generate())

    @classmethod
    def read(cls, path: Path) -> "SecretKeys":
        """Read the keys from a file."""
        raw = _read_secret(path, "an aggregator's keys", 128)
        return cls(
            MLKEM768PrivateKey.from_seed_bytes(raw[:64]),
            X25519PrivateKey.from_private_bytes(raw[64:96]),
            Ed25519PrivateKey.from_private_bytes(raw[96:]),
        )

    def write(self, path: Path) -> None:
        """Write the keys to a new file that only its owner can read."""
        _write_secret(path, self._content)

    def open(self, sealed: bytes, info: bytes) -> bytes | None:
        """Decrypt bytes that were sealed to these keys with this `info`; None if that fails."""
        try:
            return SUITE.decrypt(sealed, self._sealing, info)
        except (InvalidTag, ValueError):
            return None

    def sign(self, content: bytes) -> bytes:
        """Sign the content with Ed25519."""
        return self._signing.sign(content)


class ReportKey:
    """A site's secret key, with which it signs its reports."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def make(cls, path: Path) -> "ReportKey":
        """Generate a key and write it to a new file that only its owner can read."""
        key = Ed25519PrivateKey.generate()
        _write_secret(path, key.private_bytes_raw())
        return cls(key)

    @classmethod
    def read(cls, path: Path) -> "ReportKey":
        """Read the key from a file."""
        return cls(Ed25519PrivateKey.from_private_bytes(_read_secret(path, "a site's key", 32)))

    @property
    def public(self) -> str:
        """The public key in hexadecimal digits, as in the roster."""
        return self._key.public_key().public_bytes_raw().hex()

    def sign(self, content: bytes) -> bytes:
        """Sign the content with Ed25519."""
        return self._key.sign(content)


def signed_by(public: str, signature: bytes, content: bytes) -> bool:
    """Whether the site with this public key signed this content."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
    except ValueError:
        return False
    return _verified(key, signature, content)


def _verified(key: Ed25519PublicKey, signature: bytes, content: bytes) -> bool:
    try:
        key.verify(signature, content)
    except InvalidSignature:
        return False
    return True


def _write_secret(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise EpifedError(f"{path}: cannot be made: {error.strerror}") from None
    with os.fdopen(handle, "w") as file:
        file.write(content.hex() + "\n")
        file.flush()
        os.fsync(file.fileno())


def _read_secret(path: Path, what: str, length: int) -> bytes:
    try:
        content = bytes.fromhex(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror}; expected {what}") from None
    except ValueError:
        content = b""
    if len(content) != length:
        raise EpifedError(f"{path}: expected {what}, {length} bytes in hexadecimal digits")
    return content
