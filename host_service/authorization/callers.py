"""Callers of the gateway and of administration: API keys, their roles and their reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from host_service.authorization.secrets import hash_secret
from host_service.errors import Unauthenticated, Unauthorized
from stores.keys import ApiKeys
from stores.records import ApiKeyRecord


class Role(StrEnum):
    """What a key may do."""

    INGRESS = "ingress"
    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody with an API key.

    Attributes:
        key_id: Which key.
        role: What it may do.
        workspace: The only workspace it may touch; None: all.
        bot: The only bot it may touch; None: all.
    """

    key_id: str
    role: Role
    workspace: str | None = None
    bot: str | None = None

    def require(self, roles: frozenset[Role], rpc: str) -> None:
        """Refuse a caller whose role is none of these.

        Raises:
            Unauthorized: With the roles that would do.
        """
        if self.role not in roles:
            wanted = " or ".join(sorted(roles))
            raise Unauthorized(
                f"{rpc} needs an API key of role {wanted}; this key has role {self.role}"
            )

    def require_unlimited(self, rpc: str) -> None:
        """Refuse a caller whose key is limited to a workspace or a bot.

        Raises:
            Unauthorized: What the call is about lies beyond every limit.
        """
        if self.workspace is not None or self.bot is not None:
            raise Unauthorized(
                f"{rpc} concerns the whole host; this key is limited to a workspace or a bot"
            )

    def reaches(self, *, workspace: str, bot: str) -> bool:
        """Return whether something of this workspace and bot is within the key's limits."""
        return (self.workspace is None or self.workspace == workspace) and (
            self.bot is None or self.bot == bot
        )


class CallerDirectory:
    """Tells callers by their keys.

    Keys are held in memory by hash: a look-up costs a hash and no read. `reload` brings them up to
        date after a change; a
    key of another host's making is found by one read of the store when it is first used.
    """

    def __init__(self, *, keys: ApiKeys, clock: Callable[[], datetime]) -> None:
        self._keys = keys
        self._clock = clock
        self._by_hash: Mapping[bytes, ApiKeyRecord] = {}

    async def reload(self) -> None:
        """Read all keys again."""
        self._by_hash = {key.hash: key for key in await self._keys.list()}

    async def identify(self, authorization: str | None) -> Caller:
        """Return whose key this is.

        Args:
            authorization: The value of the `authorization` metadata, `Bearer <key>`.

        Raises:
            Unauthenticated: There is no key, or it is unknown, expired or revoked; which of these
                is not told.
        """
        if not authorization:
            raise Unauthenticated(
                "no API key: send metadata `authorization: Bearer <key>`; "
                "`runmesh keys show` prints the operator's"
            )
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != "bearer" or not secret:
            raise Unauthenticated("the `authorization` metadata must be `Bearer <key>`")
        digest = hash_secret(secret.strip())
        record = self._by_hash.get(digest) or await self._keys.find_by_hash(digest)
        if record is None or not self._holds(record):
            raise Unauthenticated("the API key is unknown, expired or revoked")
        return Caller(record.key_id, Role(record.role), record.workspace, record.bot)

    def _holds(self, record: ApiKeyRecord) -> bool:
        if record.revoked_at is not None:
            return False
        return record.expires_at is None or self._clock() < record.expires_at
