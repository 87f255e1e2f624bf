"""What the kit says to runners: texts of every kind, and events of every type."""

from typing import Final

#: The types of events that the contract names, beside any other one.
EVENT_TYPES: Final = (
    "message.received",
    "message.recalled",
    "group.member_joined",
    "friend.request_received",
    "schedule.triggered",
    "api.invoked",
    "conformance.made_up",
)

#: By name. None has U+0000 or a lone surrogate: no host passes those on.
TEXTS: Final = {
    "ascii": "Hello, runner.",
    "combining": "e\u0301 a\u0308\u0323 Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d",
    "composed and decomposed": "\u00e9 e\u0301 \u212b \u00c5 A\u030a",
    "right to left": "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 abc "
    "\u202eoverride\u202c \u200f!",
    "ideographs": "\u4f60\u597d\uff0c\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \uc548\ub155",
    "hangul letters": "\u1112\u1161\u11ab\u1100\u1173\u11af",
    "astral": "\U0001f600 \U00010348 \U0002a6d6 \U0001d4d0 \U0010fffd",
    "joined emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467 "
    "\U0001f3f3\ufe0f\u200d\U0001f308 \U0001f44d\U0001f3fd",
    "flags": "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7\U0001f1ef\U0001f1f5",
    "zero width": "a\u200bb\u200cc\u200dd\u2060e",
    "byte order mark": "\ufeffat the start and \ufeff inside",
    "non-characters": "\ufffe \uffff \ufdd0 \U0001ffff",
    "replacement": "\ufffd stays \ufffd",
    "line ends": "one\ntwo\r\nthree\rfour\u2028five\u2029six\u0085seven\v\f",
    "controls": "".join(map(chr, range(1, 32))) + "\x7f\x80\x9f\x1b[31mred\x1b[0m",
    "white space": " \t\u00a0\u3000 in between \u2003\u205f ",
    "private use": "\ue000 \uf8ff \U000f0000",
    "quotes": "\"'`\\ {} [] <b>&amp;</b> %s %% $PATH ${x} {{y}} '; DROP TABLE runs; --",
    "escapes": "\\u0000 \\ud800 \\n \\x00 %00 &#0;",
    "indic": "\u0915\u094d\u0937\u093f \u0e01\u0e33\u0e49 \u0f40\u0fb5",
    "tall": "x" + "\u0301" * 500,
}


def long_line(size_bytes: int) -> str:
    """One line without a space, of every width that UTF-8 has."""
    unit = "a\u00e9\u4f60\U0001f600"
    return unit * (size_bytes // len(unit.encode()))


def long_text(size_bytes: int) -> str:
    """Short words in lines."""
    line = "The quick brown fox jumps over the lazy dog, again and again and once more.\n"
    return (line * (size_bytes // len(line) + 1))[:size_bytes]
