"""Attach tokens: with one, runners of one plugin may dial the host."""

from __future__ import annotations

import logging
from asyncio import Future
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from host_service.authorization.secrets import ATTACH_TOKEN_PREFIX, hash_secret, new_secret
from host_service.errors import FieldFault, InvalidArgument, Unauthenticated
from host_service.identity import new_id
from stores.attach_tokens import AttachTokens
from stores.errors import StoreError
from stores.records import AttachTokenRecord

_log = logging.getLogger("runmesh.host")

#: How long a token works when nothing is said.
USUAL_LIFETIME = timedelta(days=30)

# One text for every way to fail: what is wrong with a token is told to nobody.
_REFUSED = "the attach token is missing, unknown, expired or revoked"


class AttachGrants:
    """Issues attach tokens, and tells what one opens. Every look is one read of the store.

    Args:
        tokens: Where they are stored.
        clock: Tells the time.
    """

    def __init__(self, *, tokens: AttachTokens, clock: Callable[[], datetime]) -> None:
        self._tokens = tokens
        self._clock = clock

    async def issue(
        self, plugin_id: str, lifetime: timedelta | None = None
    ) -> tuple[AttachTokenRecord, str]:
        """Make a token for a plugin; return what is stored of it, and the token itself.

        Raises:
            InvalidArgument: It would work for longer than there are dates, or not at all.
        """
        now, secret = self._clock(), new_secret(ATTACH_TOKEN_PREFIX)
        record = AttachTokenRecord(
            token_id=new_id(),
            plugin_id=plugin_id,
            hash=hash_secret(secret),
            created_at=now,
            expires_at=_expiry(now, USUAL_LIFETIME if lifetime is None else lifetime),
        )
        await self._tokens.create(record)
        return record, secret

    async def all(self) -> Sequence[AttachTokenRecord]:
        """Return all tokens, those that hold no more as well, oldest first."""
        return await self._tokens.list()

    async def revoke(self, token_id: str) -> AttachTokenRecord | None:
        """End a token, if it holds; return it, or None where there is none."""
        await self._tokens.revoke(token_id, self._clock())
        return await self._tokens.get(token_id)

    async def identify(self, authorization: str | None) -> AttachTokenRecord:
        """Return the token that a runner shows, which holds now.

        Args:
            authorization: The value of the `authorization` metadata, `Bearer <token>`.

        Raises:
            Unauthenticated: There is none, or it is unknown, expired or revoked; which of these is
                not told.
        """
        scheme, _, secret = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not secret:
            raise Unauthenticated(_REFUSED)
        record = await self._tokens.find_by_hash(hash_secret(secret.strip()))
        if record is None or not self._holds(record):
            raise Unauthenticated(_REFUSED)
        return record

    async def is_unrevoked(self, token_id: str) -> bool:
        """Return whether no host has revoked a token; when it expires was known from the start.

        While the store is away, what held is taken to hold.
        """
        try:
            record = await self._tokens.get(token_id)
        except StoreError as error:
            _log.warning("attach token %s could not be looked at: %s", token_id, error)
            return True
        return record is not None and record.revoked_at is None

    def note_use(self, token_id: str) -> None:
        """Write down that a runner has attached with a token; nobody waits for it."""
        try:
            noted = self._tokens.mark_used(token_id, self._clock())
        except StoreError as error:
            _log.warning("the use of an attach token could not be written down: %s", error)
        else:
            noted.add_done_callback(_note_failure)

    def seconds_left(self, record: AttachTokenRecord) -> float:
        """Return how long a token still works."""
        return max(0.0, (record.expires_at - self._clock()).total_seconds())

    def _holds(self, record: AttachTokenRecord) -> bool:
        return record.revoked_at is None and self._clock() < record.expires_at


def _note_failure(noted: Future[None]) -> None:
    if not noted.cancelled() and (error := noted.exception()) is not None:
        _log.warning("the use of an attach token could not be written down: %s", error)


def _expiry(now: datetime, lifetime: timedelta) -> datetime:
    try:
        expires_at = now + lifetime
    except OverflowError:
        expires_at = None
    if expires_at is None or expires_at <= now:
        rule = "more than 0, and no longer than until the year 9999"
        raise InvalidArgument([FieldFault("lifetime", rule, f"{lifetime.total_seconds():g} s")])
    return expires_at
