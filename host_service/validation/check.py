"""Checks a message against the rules, and tells every fault at once.

Each message type of the contract is compiled once (`compiled`). Two checks need no walk over a
message that passes: U+0000 is looked for in the serialized bytes, and the limits of whole messages
are compared with their length.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.message import Message
from runmesh.admin.v1 import (
    actions_pb2,
    admin_pb2,
    attach_tokens_pb2,
    explain_pb2,
    knowledge_pb2,
    models_pb2,
    plugins_pb2,
    tools_pb2,
)
from runmesh.v1 import (
    attach_pb2,
    context_pb2,
    discovery_pb2,
    event_pb2,
    gateway_pb2,
    host_api_pb2,
    manifest_pb2,
    result_pb2,
    run_pb2,
    types_pb2,
)

from host_service.validation.compiled import Check, compile_files
from host_service.validation.rule_kinds import Json, PlainText
from host_service.validation.rules import MESSAGE_SIZES, RULES
from host_service.validation.tree import walk, walk_texts
from host_service.validation.violation import MOST_VIOLATIONS, Violation, violation_of

_FILES: Final = tuple(
    module.DESCRIPTOR
    for module in (
        actions_pb2,
        admin_pb2,
        attach_pb2,
        attach_tokens_pb2,
        context_pb2,
        discovery_pb2,
        event_pb2,
        explain_pb2,
        gateway_pb2,
        host_api_pb2,
        manifest_pb2,
        knowledge_pb2,
        models_pb2,
        plugins_pb2,
        tools_pb2,
        result_pb2,
        run_pb2,
        types_pb2,
    )
)
_PLAIN_TEXT: Final = PlainText()
_JSON_FIELDS: Final = frozenset(
    name for name, rules in RULES.items() if any(isinstance(rule, Json) for rule in rules)
)


class Validator:
    """Applies the rules to messages of the contract.

    Args:
        limits: What an operator set, by the names of `GetHostResponse.limits`. What is not in it is
            as the contract says; names that no rule has are passed over.
    """

    def __init__(self, limits: Mapping[str, int | float] = MappingProxyType({})) -> None:
        self._checks: Mapping[Any, Check] = compile_files(_FILES, RULES, limits)
        self._sizes = {name: size.at(limits) for name, size in MESSAGE_SIZES.items()}
        self._smallest = min(size.limit for size in self._sizes.values())

    def find_violations(self, message: Message, *, path: str = "") -> list[Violation]:
        """Finds everything in a message that breaks a rule, up to 20 faults.

        Args:
            message: Any message of `runmesh.v1` or `runmesh.admin.v1`. It is not changed.
            path: Where the message itself stands, such as `event`; the paths told begin with it.

        Returns:
            The violations, each field's first; empty for a message that may pass.

        Raises:
            KeyError: The message is none of the contract's.
        """
        check = self._checks[message.DESCRIPTOR]
        serialized = message.SerializePartialToString()
        found: list[Violation] = []
        if len(serialized) > self._smallest:
            found.extend(islice(self._oversized(message), MOST_VIOLATIONS))
        if not found:
            # What is too large is not read: nobody waits for the faults of something that is
            # refused anyway.
            check(message, found)
            if b"\0" in serialized:
                found.extend(islice(_find_zeros(message), MOST_VIOLATIONS))
        if not found:
            return found
        return [violation.below(path) for violation in found[:MOST_VIOLATIONS]]

    def _oversized(self, message: Message) -> Iterator[Violation]:
        for path, part in walk(message):
            rule = self._sizes.get(part.DESCRIPTOR.full_name)
            if rule and (got := rule.fault(part)):
                yield violation_of(path, rule, part, got)


find_violations: Final = Validator().find_violations
"""Finds everything in a message that breaks a rule, under the limits that the contract names."""


def _find_zeros(message: Message) -> Iterator[Violation]:
    """Looks for U+0000 in every text but those that are judged as JSON, which tells more."""
    for path, name, text in walk_texts(message):
        if name not in _JSON_FIELDS and (got := _PLAIN_TEXT.fault(text)):
            yield Violation(path, _PLAIN_TEXT.words, got)
