"""A script: rules that answer in the rehearsal model's place, and make it fail as providers do.

YAML, or JSON, which is YAML as well::

    rules:
    - when: {contains: weather, turn: 1}     # all that is given must hold; without it: always
      tool_calls:
      - {name: weather__current, arguments: {city: Paris}}
    - when: {regex: "(?i)slow(ly)?"}         # RE2
      delay_seconds: 2                       # before the answer begins
      answer: Here I am.
    - when: {contains: broken}
      answer: This ends in the middle
      cut: true                              # the connection, half-way through
    - error: {status: 429, message: slow down, retry_after_seconds: 1}

The first rule that fits answers; where none does, the rehearsal model does by itself. A rule with
tool calls fits before any tool was called for the question, unless it names another `round`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import re2
import yaml

from host_service.configuration.document import (
    ConfigurationError,
    DocumentReader,
    Fault,
    compose,
    join,
)
from host_service.rehearsal.request import ChatRequest

_LARGEST_BYTES = 4 * 1024 * 1024
_LONGEST_DELAY_SECONDS = 3600.0
_LEAST_STATUS, _MOST_STATUS = 400, 599


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """When a rule fits: all that is given must hold.

    Attributes:
        contains: A piece of the user's last message, in any case.
        regex: What is found in it.
        turn: How many messages of the user there are, from 1.
        round: How often tools were called since the last one, from 0.
    """

    contains: str = ""
    regex: Any = None
    turn: int | None = None
    round: int | None = None

    def fits(self, request: ChatRequest) -> bool:
        """Return whether all of it holds."""
        text = request.question.text
        return (
            self.contains.casefold() in text.casefold()
            and (self.regex is None or self.regex.search(text) is not None)
            and self.turn in {None, request.turn}
            and self.round in {None, request.round}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedError:
    """A failure in the place of an answer.

    Attributes:
        status: The HTTP status.
        message: What it says.
        retry_after_seconds: When to come again; None: nothing is said.
    """

    status: int
    message: str
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call of a rule."""

    name: str
    arguments_json: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is done with a request that fits.

    Attributes:
        when: Which requests fit.
        answer: What is said; None: nothing of its own.
        reasoning: What is thought aloud before.
        tool_calls: Tools that are called.
        error: What fails instead.
        delay_seconds: How long nothing happens before.
        cut: Whether the connection ends half-way through the answer.
    """

    when: When = When()
    answer: str | None = None
    reasoning: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    error: ScriptedError | None = None
    delay_seconds: float = 0.0
    cut: bool = False

    def fits(self, request: ChatRequest) -> bool:
        """Return whether a request is answered by this rule."""
        if self.tool_calls and self.when.round is None and request.round > 0:
            return False
        return self.when.fits(request)


@dataclass(frozen=True, slots=True)
class Script:
    """Rules in their order."""

    rules: tuple[Rule, ...] = ()

    def rule_for(self, request: ChatRequest) -> Rule | None:
        """Return the first rule that fits, or None."""
        return next((rule for rule in self.rules if rule.fits(request)), None)


def load_script(path: Path) -> Script:
    """Read a script from a file.

    Raises:
        ConfigurationError: It cannot be read, or has faults: all of them, with lines and fields.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, f"cannot be read: {error.strerror}") from error
    if len(content) > _LARGEST_BYTES:
        raise _unreadable(path, f"has more than {_LARGEST_BYTES} bytes")
    try:
        return read_script(content.decode(), source=str(path))
    except UnicodeDecodeError as error:
        raise _unreadable(path, "is not UTF-8") from error


def _unreadable(path: Path, message: str) -> ConfigurationError:
    return ConfigurationError([Fault(str(path), 0, "", message)])


def read_script(text: str, *, source: str) -> Script:
    """Read a script.

    Args:
        text: YAML.
        source: What faults call it.

    Raises:
        ConfigurationError: It has faults: all of them, with lines and fields.
    """
    root = compose(text, source)
    if root is None:
        raise ConfigurationError([Fault(source, 0, "", "says nothing; it must have rules")])
    reader = _ScriptReader(DocumentReader(source))
    rules = reader.rules(root)
    if reader.faults:
        raise ConfigurationError(reader.faults)
    return Script(tuple(rules))


@dataclass(slots=True)
class _ScriptReader:
    """Reads nodes; what is wrong with them is kept by the document's reader."""

    document: DocumentReader
    faults: list[Fault] = field(init=False)

    def __post_init__(self) -> None:
        self.faults = self.document.faults

    def rules(self, root: yaml.Node) -> list[Rule]:
        rules = []
        read = self._fields(root, "", {"rules": lambda node, _path: node})
        if "rules" not in read and not self.faults:
            self.document.fault(root, "", "must have rules")
        elif "rules" in read:
            rules = [
                rule
                for path, node in self.document.items(read["rules"], "rules")
                if (rule := self._rule(node, path)) is not None
            ]
        return rules

    def _rule(self, node: yaml.Node, path: str) -> Rule | None:
        before = len(self.faults)
        values = self._fields(
            node,
            path,
            {
                "when": self._when,
                "answer": self.document.text,
                "reasoning": self.document.text,
                "tool_calls": self._calls,
                "error": self._error,
                "delay_seconds": self._delay,
                "cut": self.document.truth,
            },
        )
        if len(self.faults) == before and not values.keys() & {
            "answer", "reasoning", "tool_calls", "error", "delay_seconds", "cut",
        }:  # fmt: skip
            self.document.fault(node, path, "does nothing: give it an answer, tool_calls or error")
        if "error" in values and values.keys() & {"answer", "tool_calls", "reasoning"}:
            self.document.fault(node, path, "has an error: leave what it would have said")
        return None if self.faults else Rule(**values)

    def _when(self, node: yaml.Node, path: str) -> When | None:
        values = self._fields(
            node,
            path,
            {
                "contains": self.document.text,
                "regex": self._regex,
                "turn": lambda at, of: self._whole(at, of, least=1),
                "round": lambda at, of: self._whole(at, of, least=0),
            },
        )
        return When(**values)

    def _regex(self, node: yaml.Node, path: str) -> Any:
        text = self.document.text(node, path)
        if text is None:
            return None
        options = re2.Options()
        options.log_errors = False
        try:
            return re2.compile(text, options)
        except re2.error as error:
            told = error.args[0]
            told = told.decode() if isinstance(told, bytes) else told
            self.document.fault(node, path, f"is no regular expression of RE2: {told}")
            return None

    def _calls(self, node: yaml.Node, path: str) -> tuple[ScriptedCall, ...]:
        calls = []
        for at, item in self.document.items(node, path):
            values = self._fields(
                item, at, {"name": self.document.text, "arguments": self.document.json}
            )
            if "name" in values:
                calls.append(ScriptedCall(values["name"], values.get("arguments", "{}")))
            elif isinstance(item, yaml.MappingNode):
                self.document.fault(item, at, "must have a name")
        return tuple(calls)

    def _error(self, node: yaml.Node, path: str) -> ScriptedError | None:
        if isinstance(node, yaml.ScalarNode):
            status = self._status(node, path)
            return None if status is None else ScriptedError(status=status, message="as scripted")
        values = self._fields(
            node,
            path,
            {
                "status": self._status,
                "message": self.document.text,
                "retry_after_seconds": self._delay,
            },
        )
        return ScriptedError(**{"status": 500, "message": "as scripted", **values})

    def _status(self, node: yaml.Node, path: str) -> int | None:
        return self._whole(node, path, least=_LEAST_STATUS, most=_MOST_STATUS)

    def _whole(
        self, node: yaml.Node, path: str, *, least: int, most: int | None = None
    ) -> int | None:
        value = self.document.number(node, path)
        if value is None:
            return None
        if isinstance(value, int) and least <= value and (most is None or value <= most):
            return value
        bounds = f"from {least}" if most is None else f"from {least} to {most}"
        self.document.fault(node, path, f"must be a whole number {bounds}; got {value}")
        return None

    def _delay(self, node: yaml.Node, path: str) -> float | None:
        value = self.document.number(node, path)
        if value is not None and not 0 <= value <= _LONGEST_DELAY_SECONDS:
            rule = f"must be seconds, 0 to {_LONGEST_DELAY_SECONDS:g}; got {value}"
            self.document.fault(node, path, rule)
            return None
        return value

    def _fields(
        self, node: yaml.Node, path: str, readers: Mapping[str, Callable[[yaml.Node, str], Any]]
    ) -> dict[str, Any]:
        """Return the values of a mapping that could be read."""
        return dict(self._read_fields(node, path, readers))

    def _read_fields(
        self, node: yaml.Node, path: str, readers: Mapping[str, Callable[[yaml.Node, str], Any]]
    ) -> Iterator[tuple[str, Any]]:
        for name, key, value in self.document.entries(node, path):
            if name not in readers:
                self.document.unknown(key, path, name, tuple(readers))
                continue
            read = readers[name](value, join(path, name))
            if read is not None:
                yield name, read


class ScriptFile:
    """A script that is read again when its file changes.

    Args:
        path: The file.

    Raises:
        ConfigurationError: As `load_script`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at = _changed_at(path)
        self._script = load_script(path)

    def current(self) -> Script:
        """Return what the file says now.

        Raises:
            ConfigurationError: What it says now will not do.
        """
        changed_at = _changed_at(self._path)
        if changed_at != self._read_at:
            self._script = load_script(self._path)
            self._read_at = changed_at
        return self._script


def _changed_at(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino
