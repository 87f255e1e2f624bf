"""Takes out of what an adapter adds to an event whatever a runner must not be handed.

Dropped, at any depth, are entries whose name begins with `_`, looks like a secret (secret, token,
key, password, credential), or names a permission: the word itself, an area of `RunnerPermissions`
with one of its rights (`models.invoke`), or the value of one of its enums. Dropping too much costs
an entry; dropping too little costs a secret.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

from runmesh.v1.manifest_pb2 import RunnerPermissions

from host_service.validation.json_exact import read_exactly, write_exactly
from host_service.validation.json_text import find_json_fault

_LOOKS_SECRET: Final = re.compile("secret|token|key|password|passwd|credential|permission")
_LONGEST_NAME_TOLD: Final = 64


def filter_adapter_extra(json_text: str) -> tuple[str | None, list[str]]:
    """Filters the JSON object of `adapter_extra_json`.

    Args:
        json_text: The object, as the rules let it pass.

    Returns:
        The text of what may stay, the very same where nothing was dropped, and None where nothing
        is left; and the paths of what was dropped, such as `auth.token`.

    Raises:
        ValueError: The text is not a JSON object.
    """
    fault = find_json_fault(json_text, only_object=True)
    if fault:
        raise ValueError(f"adapter_extra_json: {fault}")
    value = read_exactly(json_text)
    dropped: list[str] = []
    kept = _filter(value, "", dropped)
    if not kept:
        return None, dropped
    return (write_exactly(kept) if dropped else json_text), dropped


def _filter(value: Any, path: str, dropped: list[str]) -> Any:
    """Recurses no deeper than JSON may be nested."""
    if isinstance(value, list):
        return [_filter(entry, f"{path}[{index}]", dropped) for index, entry in enumerate(value)]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, entry in value.items():
        told = name if len(name) <= _LONGEST_NAME_TOLD else f"{name[:_LONGEST_NAME_TOLD]}..."
        place = f"{path}.{told}" if path else told
        if _is_unfit(name):
            dropped.append(place)
        else:
            kept[name] = _filter(entry, place, dropped)
    return kept


def _is_unfit(name: str) -> bool:
    # Letters that only look different, such as full-width ones, are the same here.
    plain = unicodedata.normalize("NFKC", name).strip().casefold()
    if plain.startswith("_") or _LOOKS_SECRET.search(plain):
        return True
    return re.sub("[^a-z0-9]", "", plain) in _PERMISSIONS


def _permission_names() -> Iterator[str]:
    """Yields permissions in lower case without separators, to find them however written."""
    for field in RunnerPermissions.DESCRIPTOR.fields:
        area = field.name.replace("_", "")
        if field.enum_type is None:
            yield area
            continue
        prefix = re.sub("(?<!^)(?=[A-Z])", "_", field.enum_type.name).upper()
        for value in field.enum_type.values[1:]:
            right = value.name.removeprefix(f"{prefix}_").replace("_", "").lower()
            for owner in (area, area.removesuffix("s"), prefix.replace("_", "").lower()):
                yield owner + right


_PERMISSIONS: Final = frozenset(_permission_names()) | {"platformapi", "availableapis"}
