"""Secrets that a configuration refers to: the file has the name of a variable, never the secret.

A secret is written `{env: NAME}`, for the environment variable that holds it where the file is
read; `{env: NAME, prefix: "Bearer "}` puts a text before it. Values of a tool server's variables
and headers may be plain texts as well, since most of them are no secrets.
"""

import yaml

from host_service.configuration.document import DocumentReader, join

_FORM = "{env: NAME}"
_NAMES = ("env", "prefix")


def read_secret(reader: DocumentReader, node: yaml.Node, path: str) -> str | None:
    """The secret that a node refers to; None where it does not, which is a fault."""
    if not isinstance(node, yaml.MappingNode):
        reader.fault(
            node,
            path,
            f"must be {_FORM}, the environment variable that holds it: "
            "a file is no place for a secret",
        )
        return None
    return _read_reference(reader, node, path)


def read_entry_value(reader: DocumentReader, node: yaml.Node, path: str) -> str | None:
    """The value of a variable or header: a plain text, or the secret that it refers to."""
    if isinstance(node, yaml.MappingNode):
        return _read_reference(reader, node, path)
    return reader.text(node, path)


def _read_reference(reader: DocumentReader, node: yaml.Node, path: str) -> str | None:
    parts: dict[str, str] = {}
    for name, key, value in reader.entries(node, path):
        if name not in _NAMES:
            reader.unknown(key, path, name, _NAMES)
            return None
        text = reader.text(value, join(path, name))
        if text is None:
            return None
        parts[name] = text
    if "env" not in parts:
        reader.fault(node, path, f"must be {_FORM}")
        return None
    found = reader.environment.get(parts["env"])
    if not found:
        state = "empty" if found == "" else "not set"
        reader.fault(node, path, f"the environment variable {parts['env']} is {state}")
        return None
    return parts.get("prefix", "") + found
