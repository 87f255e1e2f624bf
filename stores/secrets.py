"""Secrets: API keys, passwords and the like, encrypted at rest.

A secret belongs to a record of the catalogue and has a name there. The record's document has the
name, never the secret, so that documents can be shown, exported and kept in git.

Encryption is AES-256-GCM. The owner's kind and id and the secret's name are authenticated with the
ciphertext: one that was moved to another place in the database does not decrypt there. Keys come
from `stores.secret_keys`; each row says by which one it was encrypted.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from dataclasses import dataclass
from hmac import compare_digest
from typing import NoReturn, Protocol


class Secret:
    """A secret in memory. Shows itself to nobody who does not ask for it by `reveal`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        """Take the secret."""
        self._text = text

    def reveal(self) -> str:
        """Return the secret itself, for the one place that sends it where it belongs."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(hidden)"

    __str__ = __repr__

    def __format__(self, _specification: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return compare_digest(self._text.encode(), other._text.encode())

    __hash__ = None  # type: ignore[assignment] # nothing is to be looked up by a secret

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied out of the process."""
        raise TypeError("a secret is not to be pickled or copied")


@dataclass(frozen=True, slots=True)
class SecretOwner:
    """Whose secret it is.

    Attributes:
        kind: `agent` or a `CatalogueKind`.
        id: The record's id.
    """

    kind: str
    id: str


@dataclass(frozen=True, slots=True)
class SecretChange:
    """A secret that is to be stored along with other records, or deleted.

    Attributes:
        owner: Whose it is.
        name: Its name.
        secret: The secret; `None`: there is to be none.
    """

    owner: SecretOwner
    name: str
    secret: Secret | None


@dataclass(frozen=True, slots=True)
class Reencrypted:
    """What a re-encryption did.

    Attributes:
        changed: How many secrets are now encrypted with the newest key that were not before.
        unreadable: Those that none of the keys decrypts, by owner and name; left as they were.
    """

    changed: int
    unreadable: tuple[tuple[SecretOwner, str], ...]


class Secrets(Protocol):
    """Writes and reads secrets.

    Writes go through the journal, encrypted before they are handed to it. No error of any method
    holds a secret or a key. A change of a secret grows the catalogue's revision; deleting a record
    by the catalogue deletes its secrets with it.
    """

    def put(self, owner: SecretOwner, name: str, secret: Secret | str) -> Future[None]:
        """Store a secret, new or in place of the one that is there.

        Args:
            owner: Whose it is; need not be stored yet.
            name: Its name, by which the owner's document refers to it; 1 to 255 bytes.
            secret: Any text without lone surrogates.

        Raises:
            InvalidRecord: At once; a text cannot be stored.
            ValueTooLarge: At once; the secret has more bytes than the limit.
            SecretKeyUnusable: At once; there is no key to encrypt it with.
        """

    def delete(self, owner: SecretOwner, name: str) -> Future[bool]:
        """Delete a secret; False if it is not stored. Needs no key."""

    async def get(self, owner: SecretOwner, name: str) -> Secret | None:
        """Return a secret, or `None`.

        Raises:
            SecretUnreadable: It is there, and cannot be decrypted: its key is not among those
                there are, or what is stored was changed or moved.
        """

    async def names(self, owner: SecretOwner) -> Sequence[str]:
        """Return the names of an owner's secrets, in order. Needs no key."""

    async def missing_keys(self) -> Sequence[str]:
        """Return the ids of keys that secrets are encrypted with and that are not there."""

    async def reencrypt(self, *, batch: int = 100) -> Reencrypted:
        """Encrypt with the newest key what is encrypted with an older one.

        In batches, each a transaction of its own; a secret that is written meanwhile is left as
        it was written. Interrupted, it may be started again and does what is left.
        """
