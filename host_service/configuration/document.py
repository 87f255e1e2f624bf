"""A YAML document as nodes that know their lines, and a reader that collects every fault in it.

YAML is read strictly: what two YAML versions read differently (`no`, `0123`, `1e5`, `12:30`, a
date) is a fault that says what to write instead, and never a silent guess.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

import yaml

from host_service.configuration.scalars import Kind, Scalar, ScalarFault, read_scalar

# The contract's bound for JSON.
_DEEPEST = 64
_NOTHING: Mapping[str, str] = MappingProxyType({})
# Aliases can make a small file mean a huge value; an agent's configuration is at most 256 KiB.
_MOST_VALUES = 200_000


@dataclass(frozen=True, slots=True)
class Fault:
    """Something in a configuration that will not do.

    Attributes:
        source: The file.
        line: The line, from 1; 0 when it is about the file as a whole.
        path: Where in the document, such as `agents[0].timeout`; empty for the document itself.
        message: What is wrong, and what would be right.
    """

    source: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line else self.source
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


class ConfigurationError(Exception):
    """A configuration will not do; it has every fault that was found, in the order of the lines."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(sorted(faults, key=lambda fault: fault.line))
        super().__init__("\n".join(str(fault) for fault in self.faults))


def compose(text: str, source: str) -> yaml.Node | None:
    """Parses YAML into nodes; None for a document with nothing in it.

    Raises:
        ConfigurationError: It is not one YAML document.
    """
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        told = ", ".join(part for part in (error.context, error.problem) if part)
        fault = Fault(source, mark.line + 1 if mark else 0, "", f"not YAML: {told}")
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        fault = Fault(source, line, "", f"not YAML: it has the character U+{error.character:04X}")
    except RecursionError:
        fault = Fault(source, 0, "", "nested too deep to be read")
    raise ConfigurationError([fault])


class DocumentReader:
    """Reads nodes as what is expected of them. A fault is kept, and the answer is then None.

    Attributes:
        faults: What was wrong so far.
        lines: The line of each value that was read, by its path.
        environment: The environment variables that it may refer to.
    """

    def __init__(self, source: str, *, environment: Mapping[str, str] = _NOTHING) -> None:
        self.faults: list[Fault] = []
        self.lines: dict[str, int] = {}
        self.environment = environment
        self._source = source
        self._values = 0

    def fault(self, node: yaml.Node, path: str, message: str) -> None:
        """Keeps a fault of a node."""
        self.faults.append(Fault(self._source, node.start_mark.line + 1, path, message))

    def entries(self, node: yaml.Node, path: str) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """Names, their nodes and their values in a mapping; each name once, each a text."""
        if not isinstance(node, yaml.MappingNode):
            self.fault(node, path, f"must be a mapping of names to values; got {describe(node)}")
            return
        seen: dict[str, int] = {}
        for key, value in node.value:
            name = self._name(key, path)
            if name is None:
                continue
            line = key.start_mark.line + 1
            if name in seen:
                self.fault(key, join(path, name), f"is there twice; first on line {seen[name]}")
                continue
            seen[name] = line
            self.lines[join(path, name)] = line
            yield name, key, value

    def items(self, node: yaml.Node, path: str) -> Iterator[tuple[str, yaml.Node]]:
        """Paths and nodes of the items of a list."""
        if not isinstance(node, yaml.SequenceNode):
            self.fault(node, path, f"must be a list; got {describe(node)}")
            return
        for position, item in enumerate(node.value):
            item_path = f"{path}[{position}]"
            self.lines[item_path] = item.start_mark.line + 1
            yield item_path, item

    def unknown(self, node: yaml.Node, path: str, name: str, known: Sequence[str]) -> None:
        """Keeps the fault of a name that is not known, with the nearest that is."""
        near = get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known))}"
        self.fault(node, join(path, name), f"is not known; {hint}")

    def text(self, node: yaml.Node, path: str) -> str | None:
        """A text."""
        scalar = self._scalar(node, path, "a text")
        if scalar is None:
            return None
        if scalar.kind is not Kind.TEXT:
            hint = "give it a value" if scalar.kind is Kind.NULL else f'quote it: "{scalar.text}"'
            self.fault(node, path, f"must be a text; got {scalar.kind.value}: {hint}")
            return None
        return scalar.text

    def truth(self, node: yaml.Node, path: str) -> bool | None:
        """True or false."""
        scalar = self._scalar(node, path, "true or false")
        if scalar is None:
            return None
        if scalar.kind is not Kind.TRUTH:
            self.fault(node, path, f"must be true or false; got {scalar.kind.value}")
            return None
        return scalar.text == "true"

    def number(self, node: yaml.Node, path: str) -> int | float | None:
        """A number; a whole one keeps all its digits."""
        scalar = self._scalar(node, path, "a number")
        if scalar is None:
            return None
        if scalar.kind is Kind.WHOLE:
            return int(scalar.text)
        if scalar.kind is Kind.NUMBER:
            return float(scalar.text)
        self.fault(node, path, f"must be a number; got {scalar.kind.value}")
        return None

    def json(self, node: yaml.Node, path: str, *, depth: int = 1) -> str | None:
        """The JSON that a node means, numbers written as they are in the file."""
        self._values += 1
        if self._values > _MOST_VALUES:
            if self._values == _MOST_VALUES + 1:
                self.fault(node, path, f"means more than {_MOST_VALUES} values")
            return None
        if depth > _DEEPEST:
            self.fault(node, path, f"is nested more than {_DEEPEST} deep")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._json_object(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            items = [self.json(item, at, depth=depth + 1) for at, item in self.items(node, path)]
            return None if None in items else f"[{', '.join(filter(None, items))}]"
        scalar = self._scalar(node, path, "a JSON value")
        if scalar is None:
            return None
        return _json_text(scalar.text) if scalar.kind is Kind.TEXT else scalar.text

    def _json_object(self, node: yaml.Node, path: str, depth: int) -> str | None:
        members, whole = [], True
        for name, _, value in self.entries(node, path):
            member = self.json(value, join(path, name), depth=depth + 1)
            whole = whole and member is not None
            members.append(f"{_json_text(name)}: {member}")
        return f"{{{', '.join(members)}}}" if whole else None

    def _name(self, key: yaml.Node, path: str) -> str | None:
        if isinstance(key, yaml.ScalarNode) and key.value == "<<" and key.style is None:
            self.fault(key, path, "merge keys (<<) are not read: write the entries out")
            return None
        if not isinstance(key, yaml.ScalarNode):
            self.fault(key, path, f"a name must be a text; got {describe(key)}")
            return None
        try:
            scalar = read_scalar(key)
        except ScalarFault:
            scalar = None
        if scalar is None or scalar.kind is not Kind.TEXT:
            self.fault(
                key, path, f'a name must be a text; got {key.value}: quote it: "{key.value}"'
            )
            return None
        return scalar.text

    def _scalar(self, node: yaml.Node, path: str, expected: str) -> Scalar | None:
        if not isinstance(node, yaml.ScalarNode):
            self.fault(node, path, f"must be {expected}; got {describe(node)}")
            return None
        try:
            return read_scalar(node)
        except ScalarFault as error:
            self.fault(node, path, str(error))
            return None


def describe(node: yaml.Node) -> str:
    """What a node is, in a word or two."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "nothing" if node.tag.endswith(":null") else "a single value"


def join(path: str, name: str) -> str:
    """The path of a name in the mapping at a path."""
    return f"{path}.{name}" if path else name


def _json_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
