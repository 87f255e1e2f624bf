"""Tool calls out of fragments, in every dialect of the protocol.

Which call a fragment belongs to is told by its index, by its id, by its place among the fragments
of one chunk, or by nothing at all. The index may count from anywhere, or stay 0 for every call; the
id may come once, each time, late or never; the name whole, in pieces or again and again; the
arguments as text or as an object. What goes out is always the same: calls counted from 0, an id and
a name in the first fragment, then text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from host_service.models.answers import CalledTool, Fragment
from host_service.models.texts import MendedText
from host_service.validation.json_exact import write_exactly

# Of ids and names in the contract.
_MOST_BYTES = 255
_UNNAMED = "unnamed"
_LEGACY = "function_call"


@dataclass(slots=True)
class _Call:
    index: int
    key: object = None
    given_id: str = ""
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    mended: MendedText = field(default_factory=MendedText)
    told: bool = False

    def take_name(self, piece: str) -> None:
        # A name that was told is fixed, and what repeats it says nothing.
        if self.told or not piece or piece == self.name:
            return
        self.name = piece if self.name and piece.startswith(self.name) else self.name + piece


class ToolCallAssembly:
    """Makes the tool calls of one answer.

    Args:
        new_id: Makes an id for a call that has none.
    """

    def __init__(self, *, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._calls: list[_Call] = []
        # Those that the latest chunk was about, in its order.
        self._latest: list[_Call] = []

    def __bool__(self) -> bool:
        return bool(self._calls)

    def take(self, pieces: Sequence[Any]) -> Iterator[Fragment]:
        """Take the fragments of one chunk, and yield what goes out."""
        given = [piece for piece in pieces if isinstance(piece, Mapping)]
        calls: list[_Call] = []
        for place, piece in enumerate(given):
            call = self._call_of(piece, place, len(given))
            calls.append(call)
            yield from self._add(call, piece)
        if calls:
            self._latest = calls

    def take_legacy(self, piece: object) -> Iterator[Fragment]:
        """Take the one call of the protocol's first days."""
        if isinstance(piece, Mapping):
            yield from self.take([{"index": _LEGACY, "function": piece}])

    def end(self) -> Iterator[Fragment]:
        """Yield what was held back."""
        for call in self._calls:
            rest = call.mended.end()
            if rest or not call.told:
                yield self._told(call, rest)

    def calls(self) -> tuple[CalledTool, ...]:
        """Return the calls, after `end`."""
        return tuple(
            CalledTool(call.id, call.name, "".join(call.arguments)) for call in self._calls
        )

    def _add(self, call: _Call, piece: Mapping[str, Any]) -> Iterator[Fragment]:
        function = piece.get("function")
        function = function if isinstance(function, Mapping) else piece
        call.take_name(_text(function.get("name")))
        if not call.given_id:
            call.given_id = _text(piece.get("id"))
        arguments = call.mended.add(_arguments(function.get("arguments")))
        if arguments:
            yield self._told(call, arguments)

    def _told(self, call: _Call, arguments: str) -> Fragment:
        call.arguments.append(arguments)
        if call.told:
            return Fragment(call.index, arguments=arguments)
        call.told = True
        call.id = self._own_id(call)
        call.name = call.name or _UNNAMED
        return Fragment(call.index, call.id, call.name, arguments)

    def _own_id(self, call: _Call) -> str:
        given = call.given_id
        taken = any(other.id == given for other in self._calls if other is not call)
        return self._new_id() if not given or taken or len(given.encode()) > _MOST_BYTES else given

    def _call_of(self, piece: Mapping[str, Any], place: int, places: int) -> _Call:
        key, given_id, name = piece.get("index"), _text(piece.get("id")), _name(piece)
        if isinstance(key, int | str) and not isinstance(key, bool):
            return self._indexed(key, given_id, name)
        if given_id:
            found = self._with_id(given_id)
            return found or self._begin(None)
        if name and self._begins_another(name, place, places):
            return self._begin(None)
        if not self._calls:
            return self._begin(None)
        if places > 1 and place < len(self._latest):
            return self._latest[place]
        return self._calls[-1]

    def _indexed(self, key: object, given_id: str, name: str) -> _Call:
        found = next((call for call in reversed(self._calls) if call.key == key), None)
        if found is None:
            return self._begin(key)
        if given_id and name and found.given_id and given_id != found.given_id:
            # One index for every call, as some count.
            return self._with_id(given_id) or self._begin(key)
        return found

    def _begins_another(self, name: str, place: int, places: int) -> bool:
        """Tell whether a name without index and id begins a call, rather than goes on with one."""
        if not self._calls:
            return True
        if places > 1:
            held = self._latest[place] if place < len(self._latest) else None
            return held is None or held.name != name
        latest = self._calls[-1]
        return latest.told and (latest.name != name or _is_whole("".join(latest.arguments)))

    def _with_id(self, given_id: str) -> _Call | None:
        return next((call for call in self._calls if call.given_id == given_id), None)

    def _begin(self, key: object) -> _Call:
        call = _Call(index=len(self._calls), key=key)
        self._calls.append(call)
        return call


def _name(piece: Mapping[str, Any]) -> str:
    function = piece.get("function")
    return _text(function.get("name") if isinstance(function, Mapping) else piece.get("name"))


def _text(value: object) -> str:
    return MendedText().add(value) if isinstance(value, str) else ""


def _arguments(value: object) -> str:
    if isinstance(value, str):
        return value
    return write_exactly(value) if isinstance(value, dict | list) else ""


def _is_whole(arguments: str) -> bool:
    """Tell whether arguments are a whole JSON object, without taking them for one."""
    text = arguments.strip()
    if not text.endswith("}"):
        return False
    depth, quoted, escaped = 0, False, False
    for character in text:
        if quoted:
            quoted = escaped or character != '"'
            escaped = not escaped and character == "\\"
        elif character == '"':
            quoted = True
        else:
            depth += (character in "{[") - (character in "}]")
    return depth == 0
