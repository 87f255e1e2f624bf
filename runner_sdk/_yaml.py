"""Reads YAML files strictly: plain values, and no name twice. Imported only where one is read."""

from pathlib import Path
from typing import Any

import yaml

from runner_sdk.errors import ManifestError

_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_Loader):  # type: ignore[misc]
    """Refuses a name that occurs twice in one mapping: YAML would keep the last in silence."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the name {key.value!r} occurs twice", key.start_mark
                )
            seen.add(key.value if isinstance(key.value, str) else id(key))
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def read_yaml(file: Path) -> Any:
    """Returns the values of a YAML file.

    Raises:
        ManifestError: It cannot be read, or is not YAML.
    """
    try:
        return yaml.load(file.read_text("utf-8"), Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise ManifestError(
            file=str(file), field="", rule=f"cannot be read: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise ManifestError(
            file=str(file), field="", rule=f"must be UTF-8: byte {error.start} is not"
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ManifestError(
            file=str(file), field=where, rule=f"is not readable as YAML: {problem}"
        ) from error
