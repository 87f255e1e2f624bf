"""API keys that a deployment declares by name, beside those that are made by a call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from host_service.agents.changes import SECRET_JSON, Change, Field
from host_service.authorization.callers import Role
from host_service.authorization.secrets import hash_secret
from host_service.errors import FieldFault
from host_service.identity import new_id
from stores.records import ApiKeyRecord
from stores.secrets import Secret

# The host made it for itself; a data folder has it. To change it would lock the operator out.
_RESERVED = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredKey:
    """A key that is to be there.

    Attributes:
        name: What it is known by.
        role: What it may do.
        secret: The key itself.
        workspace: The only workspace it may touch; None: all.
        bot: The only bot it may touch; None: all.
    """

    name: str
    role: Role
    secret: Secret
    workspace: str | None = None
    bot: str | None = None


class KeyPlan:
    """What declared keys make of those that are stored.

    Args:
        stored: All keys.
        now: When it is planned.

    Attributes:
        records: Keys to be stored, each new or in place of the one with its id.
        changes: What becomes of each declared key.
        faults: What will not do.
    """

    def __init__(self, stored: Sequence[ApiKeyRecord], *, now: datetime) -> None:
        self.records: list[ApiKeyRecord] = []
        self.changes: list[Change] = []
        self.faults: list[FieldFault] = []
        self._now = now
        self._holder_of: dict[bytes, str] = {key.hash: key.key_id for key in stored}
        self._working: dict[str, list[ApiKeyRecord]] = {}
        for key in stored:
            if key.revoked_at is None and (key.expires_at is None or now < key.expires_at):
                self._working.setdefault(key.name, []).append(key)

    def add(self, declared: DeclaredKey, path: str) -> None:
        """Plan one more key; `path` is where it is declared."""
        before = self._working.get(declared.name, [])
        if declared.name == _RESERVED:
            self._fault(f"{path}.name", "another name: the host's own key has it", declared.name)
            return
        if len(before) > 1:
            rule = "a name that at most one working key has: revoke the others"
            self._fault(f"{path}.name", rule, f"{len(before)} keys named {declared.name!r}")
            return
        after = self._record(declared, before[0] if before else None)
        if self._holder_of.setdefault(after.hash, after.key_id) != after.key_id:
            rule = "a secret that no other key has or had"
            self._fault(f"{path}.secret", rule, "one that is taken")
            return
        if not before:
            self.changes.append(Change("key", declared.name, "created"))
            self.records.append(after)
            return
        fields = _differences(before[0], after)
        kind = "updated" if fields else "unchanged"
        self.changes.append(Change("key", declared.name, kind, fields))
        if fields:
            self.records.append(after)

    def _record(self, declared: DeclaredKey, before: ApiKeyRecord | None) -> ApiKeyRecord:
        digest = hash_secret(declared.secret.reveal())
        if before is None:
            return ApiKeyRecord(
                key_id=new_id(),
                name=declared.name,
                hash=digest,
                role=declared.role,
                workspace=declared.workspace,
                bot=declared.bot,
                created_at=self._now,
            )
        return replace(
            before,
            hash=digest,
            role=declared.role,
            workspace=declared.workspace,
            bot=declared.bot,
            expires_at=None,
        )

    def _fault(self, field: str, rule: str, got: str) -> None:
        self.faults.append(FieldFault(field, rule, got))


def _differences(before: ApiKeyRecord, after: ApiKeyRecord) -> tuple[Field, ...]:
    fields = [
        (name, old, new)
        for name in ("bot", "expires_at", "role", "workspace")
        for old, new in ((_json(before, name), _json(after, name)),)
        if old != new
    ]
    if before.hash != after.hash:
        fields.append(("secret", SECRET_JSON, SECRET_JSON))
    return tuple(fields)


def _json(key: ApiKeyRecord, name: str) -> str | None:
    value = getattr(key, name)
    return None if value is None else json.dumps(str(value), ensure_ascii=False)
