"""The prompts that an agent's configuration has, as they were at a run's start."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from host_service.agents.config_schema import ConfigSchema


class PromptEntry(NamedTuple):
    """One message of a prompt.

    Attributes:
        role: Who speaks, as the configuration has it.
        content: The text.
    """

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts in a configuration, read when they are asked for.

    Attributes:
        config_json: The configuration, with its defaults.
        names: Its fields of type `prompt-editor`, in the order of the runner's schema.
    """

    config_json: str = "{}"
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, schema: ConfigSchema | None, config_json: str) -> Prompts:
        """Return the prompts of a configuration; without a schema nothing is known to be one."""
        fields = schema.fields if schema is not None else ()
        return cls(config_json, tuple(each.name for each in fields if each.type == "prompt-editor"))

    def read(self) -> Sequence[tuple[str, Sequence[PromptEntry]]]:
        """Return every field that has entries, and its entries."""
        if not self.names:
            return ()
        config: Mapping[str, Any] = json.loads(self.config_json)
        found = ((name, config.get(name) or ()) for name in self.names)
        return [
            (name, [PromptEntry(each["role"], each["content"]) for each in entries])
            for name, entries in found
            if entries
        ]
