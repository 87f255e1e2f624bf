"""What applying changes: each object, field by field."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from host_service.agents.binding import Binding

#: What stands for a value that is kept secret, as JSON.
SECRET_JSON = '"***"'  # noqa: S105 - says that there is one

Field = tuple[str, str | None, str | None]


class Declarable(Protocol):
    """An object that operators declare."""

    @property
    def id(self) -> str:
        """What it is named by."""

    @property
    def enabled(self) -> bool:
        """Whether it is in force."""

    def to_document(self) -> str:
        """Return the JSON text that is stored of it."""


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one object.

    Attributes:
        object: `agent`, `binding`, `model`, `tool_server`, `knowledge_base`, `policy`,
            `plugin` or `key`.
        id: Its id.
        kind: `created`, `updated` or `unchanged`.
        fields: Paths of the fields that differ, with their JSON before and after (None: not set).
    """

    object: str
    id: str
    kind: str
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What applying came to.

    Attributes:
        changes: What became of each object.
        warnings: What is not as somebody may think.
    """

    changes: tuple[Change, ...]
    warnings: tuple[str, ...] = ()


def change_of(
    kind: str,
    before: Declarable | None,
    after: Declarable,
    secrets: Sequence[Field] = (),
) -> Change:
    """Return what becomes of an object.

    Args:
        kind: What it is.
        before: As it is stored, if it is.
        after: As it is to be.
        secrets: Which of its secrets differ.
    """
    if before is None:
        return Change(kind, after.id, "created")
    old, new = _flat(before), _flat(after)
    fields = [
        (path, old.get(path), new.get(path))
        for path in sorted(old | new)
        # An object that was empty differs by what it has now, and need not be told of itself.
        if old.get(path) != new.get(path) and not _is_above(path, old | new)
    ]
    fields += secrets
    return Change(kind, after.id, "updated" if fields else "unchanged", tuple(fields))


def _flat(item: Declarable) -> dict[str, str]:
    """Return the leaves of an object as JSON by path; texts of JSON count by their own fields."""
    document: dict[str, Any] = {**json.loads(item.to_document()), "enabled": item.enabled}
    if isinstance(item, Binding):
        document["agent_id"] = item.agent_id
    for name in [name for name in document if name.endswith("_json")]:
        document[name.removesuffix("_json")] = json.loads(document.pop(name))
    leaves: dict[str, str] = {}
    stack: list[tuple[str, Any]] = [("", document)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, dict) and (value or not path):
            stack += [(_below(path, name), entry) for name, entry in value.items()]
        else:
            leaves[path] = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return leaves


def _is_above(path: str, others: Iterable[str]) -> bool:
    return any(each.startswith(f"{path}.") for each in others)


def _below(path: str, name: str) -> str:
    # A name with a dot in it must not look like two.
    step = json.dumps(name, ensure_ascii=False) if "." in name else name
    return f"{path}.{step}" if path else step
