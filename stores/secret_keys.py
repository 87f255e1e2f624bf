"""The keys that secrets are encrypted with, and where they come from.

A key is `rms_` and 43 url-safe base64 characters: 256 random bits. Several keys are separated by
white space or commas, the newest first: the first encrypts, all of them decrypt.

`RUNMESH_SECRET_KEY` holds them, or a file, one key a line, that only its owner may read. With
neither, the file is made with a new key. With both, the environment's keys come first and the
file's still decrypt, so that one can move from the file to the environment.

To rotate: put a new key before the others (`new_secret_key`), start again, `Secrets.reencrypt`,
and drop the old key. Who runs several hosts on one database gives all of them the same keys: the
new one at the end of each first, so that all can read what the first of them encrypts with it.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stores.errors import SecretKeyUnusable

VARIABLE: Final = "RUNMESH_SECRET_KEY"

_FORM: Final = re.compile(r"rms_([A-Za-z0-9_-]{43})")
_FORM_IN_WORDS: Final = "a key is rms_ and 43 url-safe base64 characters (256 bits)"
_SEPARATORS: Final = re.compile(r"[\s,]+")
_KEY_BYTES: Final = 32
_PRIVATE: Final = 0o600
_OTHERS: Final = 0o077


@dataclass(frozen=True, slots=True)
class SecretKey:
    """One key.

    Attributes:
        id: Names the key without telling anything about it; stored with what it encrypted.
        material: The key itself.
    """

    id: str
    material: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SecretKeys:
    """The keys there are, the newest first. May be none, which encrypts and decrypts nothing."""

    keys: tuple[SecretKey, ...] = ()

    @property
    def newest(self) -> SecretKey:
        """The key that encrypts.

        Raises:
            SecretKeyUnusable: There is none.
        """
        if not self.keys:
            raise SecretKeyUnusable(
                f"there is no key to encrypt secrets with: set {VARIABLE}, or use a data folder, "
                "where one is made"
            )
        return self.keys[0]

    def find(self, key_id: str) -> SecretKey | None:
        """Return the key with this id, or `None`."""
        return next((key for key in self.keys if key.id == key_id), None)


def new_secret_key() -> str:
    """Return a new key as text."""
    return "rms_" + base64.urlsafe_b64encode(secrets.token_bytes(_KEY_BYTES)).rstrip(b"=").decode()


def parse_secret_keys(text: str, *, source: str) -> SecretKeys:
    """Read keys.

    Args:
        text: The keys, the newest first.
        source: Where they come from, for errors.

    Raises:
        SecretKeyUnusable: There are none, or one has not the form of a key.
    """
    words = [word for word in _SEPARATORS.split(text) if word]
    if not words:
        raise SecretKeyUnusable(f"{source} holds no key: {_FORM_IN_WORDS}")
    return SecretKeys(
        _distinct(
            _key(word, f"{source}, key {n} of {len(words)}") for n, word in enumerate(words, 1)
        )
    )


def load_secret_keys(environment: Mapping[str, str], file: Path) -> SecretKeys:
    """Return the keys of the environment and of a file; make the file when there are none.

    Args:
        environment: The process's environment.
        file: The file; its folder must be there.

    Raises:
        SecretKeyUnusable: What is there cannot be used, or the file cannot be made.
    """
    given = environment.get(VARIABLE)
    kept = _read(file)
    if given is None:
        return parse_secret_keys(_make(file) if kept is None else kept, source=f"the file {file}")
    keys = parse_secret_keys(given, source=VARIABLE).keys
    if kept is not None:
        keys += parse_secret_keys(kept, source=f"the file {file}").keys
    return SecretKeys(_distinct(keys))


def _key(word: str, source: str) -> SecretKey:
    form = _FORM.fullmatch(word)
    if form is None:
        raise SecretKeyUnusable(f"{source} is none: {_FORM_IN_WORDS}")
    material = base64.urlsafe_b64decode(form[1] + "=")
    return SecretKey(hashlib.sha256(b"runmesh key id\0" + material).hexdigest()[:16], material)


def _distinct(keys: Iterable[SecretKey]) -> tuple[SecretKey, ...]:
    return tuple({key.id: key for key in keys}.values())


def _read(file: Path) -> str | None:
    try:
        mode = file.stat().st_mode
        text = file.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise SecretKeyUnusable(f"the key file {file} cannot be read: {reason}") from None
    if mode & _OTHERS:
        raise SecretKeyUnusable(
            f"the key file {file} may be read or written by others: chmod 600 it, and rotate the "
            "key if somebody may have read it"
        )
    return text


def _make(file: Path) -> str:
    """Make the file, whole or not at all, and return what it holds.

    When another process makes it at the same time, one of the two keys becomes that of both.
    """
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, _PRIVATE)
        try:
            with os.fdopen(descriptor, "w") as opened:
                opened.write(new_secret_key() + "\n")
                opened.flush()
                os.fsync(opened.fileno())
            _link(temporary, file)
        finally:
            temporary.unlink()
    except OSError as error:
        raise SecretKeyUnusable(
            f"the key file {file} cannot be made: {error.strerror}; make it writable, or set "
            f"{VARIABLE}"
        ) from error
    return file.read_text("utf-8")


def _link(temporary: Path, file: Path) -> None:
    try:
        os.link(temporary, file)
    except FileExistsError:
        return
    # What is encrypted from now on is lost without the key: its name must survive as well.
    folder = os.open(file.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
