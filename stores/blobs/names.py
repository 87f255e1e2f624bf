"""The names of blobs: the only text that ever becomes a path."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from stores.errors import InvalidRecord

_FORM = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}", re.ASCII)
_RANDOM_BYTES = 8


@dataclass(frozen=True, slots=True, order=True)
class BlobName:
    """A blob's name: the SHA-256 of its bytes and a random part, `<64 hex digits>.<16>`.

    The random part makes that a name is used once: bytes that come back after their blob was
    given up get another name, which a deletion still under way cannot hit.

    Attributes:
        text: The name; of this form and no other, so that it is one plain part of a path.
    """

    text: str

    def __post_init__(self) -> None:
        if _FORM.fullmatch(self.text) is None:
            rule = "must be 64 hexadecimal digits, a dot and 16 more: only the store makes names"
            raise InvalidRecord("blob", "name", rule)

    @classmethod
    def new(cls, sha256: bytes) -> BlobName:
        """Return a name that nobody had before, for bytes with this digest."""
        return cls(f"{sha256.hex()}.{secrets.token_hex(_RANDOM_BYTES)}")

    @property
    def sha256(self) -> bytes:
        """The digest of the bytes."""
        return bytes.fromhex(self.text[:64])

    @property
    def shard(self) -> str:
        """The folder that it lies in: the first two digits, so that none grows too large."""
        return self.text[:2]

    @property
    def path(self) -> str:
        """Where it lies, from the root of its store."""
        return f"{self.shard}/{self.text}"
