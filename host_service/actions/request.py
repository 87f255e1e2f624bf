"""What a run asks to have done."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from host_service.authorization.snapshot import Snapshot
from host_service.identity import join_key
from host_service.validation.digest import json_content

_FORM = b"runmesh action 1\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRequest:
    """An action that a run asks for.

    Attributes:
        name: The action, such as `message.send`.
        idempotency_key: The runner's key.
        target_json: What to act on; None if nothing was said.
        payload_json: What to do it with, likewise.
        hint: The runner's view on approval, as the contract numbers it.
    """

    name: str
    idempotency_key: str
    target_json: str | None = None
    payload_json: str | None = None
    hint: int = 0

    def digest(self) -> bytes:
        """Return 32 bytes that are the same for the same content.

        JSON counts by value, its numbers as they are written; the hint is no content.
        """
        texts = (self.target_json, self.payload_json)
        name = join_key(self.name).encode()
        parts = [b"-" if text is None else b"+" + json_content(text) for text in texts]
        return sha256(b"".join([_FORM, name, *parts])).digest()


def scope_key(snapshot: Snapshot) -> str:
    """Return within what an idempotency key is unique: the runner, agent, workspace and bot.

    Not the conversation: what one runner does for one agent under one key is one thing, whoever it
    was talking to when it asked.
    """
    identity = snapshot.identity
    return join_key(
        "action", snapshot.runner_id, snapshot.agent_id, identity.workspace, identity.bot
    )
