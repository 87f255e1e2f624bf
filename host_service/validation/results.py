"""What a runner's results must satisfy, and how their texts are mended rather than refused.

What is under way must not be lost: U+0000 and lone surrogates become U+FFFD, in texts and in the
JSON of `_json` fields. None of this belongs on the path of a plain delta; `may_need_repair` tells
from the bytes on the wire when it is called for.
"""

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from runmesh.v1.result_pb2 import RunResult

from host_service.validation.check import find_violations
from host_service.validation.json_text import repair_json_text, repair_text
from host_service.validation.tree import is_map, is_text, join, walk
from host_service.validation.violation import Violation


def may_need_repair(serialized: bytes) -> bool:
    """Tells from results as bytes whether one of their texts may need repair."""
    return b"\0" in serialized or b"\\u" in serialized


def repair_result(result: RunResult) -> list[str]:
    """Repairs every text of a result in place, at any depth.

    Where two keys of a map become the same by it, the later in the order of the keys holds.

    Returns:
        The paths of the fields that were repaired, such as
        `message_completed.message.parts[0].text`.
    """
    return [name for path, part in walk(result) for name in _repair_message(part, path)]


def result_violations(
    result: RunResult, find: Callable[[Message], list[Violation]] = find_violations
) -> list[Violation]:
    """Finds the rules of the contract that a result breaks.

    Args:
        result: A result, repaired.
        find: The `find_violations` of a validator with an operator's limits, where there is one.
    """
    return find(result)


def _repair_message(message: Any, path: str) -> list[str]:
    repaired = []
    for field, value in message.ListFields():
        name = join(path, field.name)
        if is_map(field):
            if _repair_map(value):
                repaired.append(name)
        elif not is_text(field):
            continue
        elif field.is_repeated:
            repaired.extend(f"{name}[{index}]" for index in _repair_list(field, value))
        elif (text := _repaired(field, value)) != value:
            setattr(message, field.name, text)
            repaired.append(name)
    return repaired


def _repair_list(field: FieldDescriptor, values: Any) -> list[int]:
    changed = []
    for index, value in enumerate(values):
        if (text := _repaired(field, value)) != value:
            values[index] = text
            changed.append(index)
    return changed


def _repair_map(entries: Any) -> bool:
    """Repairs a map from text to text; results have no other."""
    before = dict(entries)
    after = {repair_text(key): repair_text(before[key]) for key in sorted(before)}
    if after == before:
        return False
    entries.clear()
    entries.update(after)
    return True


def _repaired(field: FieldDescriptor, text: str) -> str:
    return repair_json_text(text)[0] if field.name.endswith("_json") else repair_text(text)
