"""Texts of models: what the contract forbids in them is mended, across the cuts of a stream."""

from __future__ import annotations

from host_service.validation.json_text import repair_text

_FIRST_HALVES = ("\ud800", "\udbff")


class MendedText:
    """Mends a text that comes in pieces.

    A character that was cut into two halves, one in each of two pieces, is whole again; a half
    without its other, and U+0000, become U+FFFD.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def add(self, piece: str) -> str:
        """Return what can be said by now, given a further piece."""
        if not piece:
            return ""
        text = self._held + piece
        first, last = _FIRST_HALVES
        self._held = text[-1] if first <= text[-1] <= last else ""
        return repair_text(text[:-1] if self._held else text)

    def end(self) -> str:
        """Return what is left when nothing more comes."""
        held, self._held = self._held, ""
        return repair_text(held)
