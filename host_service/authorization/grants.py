"""What a run was and was not given, and why: plain data for whoever explains a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One permission or resource, and what each layer said of it.

    Attributes:
        kind: `permission`, `model`, `tool`, `knowledge_base`, `skill`, `file`, `storage`, `state`,
            `action` or `history`.
        name: Of a permission its group and itself (`history: page`), of a resource its id or name,
            of state its scope, of history `beyond conversation`.
        granted: Whether the run has it.
        asked: Whether the runner's manifest asks for it. State needs no asking.
        granted_by: What of the agent grants it: a field of its configuration (`config.model`), a
            field of its policies (`resources.models`), `manifest` for a permission, which needs
            only to be asked for; empty: nothing does.
        limited_by: What kept it from being granted: `manifest` (not asked for), `agent` (asked for,
            and nothing of the agent grants it), `policy of workspace W`, `policy of bot B`,
            `policy of actor A`, `catalogue` (it is not there any more, or disabled), `event` (the
            event has no such identity); empty where it is granted.
    """

    kind: str
    name: str
    granted: bool
    asked: bool
    granted_by: str = ""
    limited_by: str = ""
