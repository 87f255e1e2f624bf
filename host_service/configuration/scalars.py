"""Single values of YAML: what each means, or why that is not clear."""

import math
import re
from dataclasses import dataclass
from enum import Enum

import yaml

_TAG = "tag:yaml.org,2002:"
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_OTHER_NUMBER = re.compile(r"[-+]?(?:0o[0-7]+|(?:\d[\d_]*\.?\d*|\.\d+)[eE][-+]?\d+)")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Kind(Enum):
    """What a single value is; the value of each member is how a message calls it."""

    TEXT = "a text"
    WHOLE = "a number"
    NUMBER = "a number with a fraction"
    TRUTH = "true or false"
    NULL = "nothing"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value.

    Attributes:
        kind: What it is.
        text: The text itself, or else the value as JSON writes it.
    """

    kind: Kind
    text: str


class ScalarFault(ValueError):
    """A single value does not say clearly what it means, or cannot be kept."""


def read_scalar(node: yaml.ScalarNode) -> Scalar:
    """Reads a single value.

    Raises:
        ScalarFault: YAML versions read it differently, or JSON or the contract has no such value.
    """
    read = _READERS.get(node.tag.removeprefix(_TAG))
    if read is None:
        raise ScalarFault(f"has the tag {_short(node.tag)}, which means nothing here")
    return read(node)


def _read_text(node: yaml.ScalarNode) -> Scalar:
    text: str = node.value
    if node.style is None and (_OTHER_NUMBER.fullmatch(text) or _JSON_NUMBER.fullmatch(text)):
        raise ScalarFault(
            f'{text} is a number to some YAML readers and a text to others: write "{text}" for '
            "the text, or the number with a decimal point and no exponent"
        )
    if _SURROGATE.search(text):
        # Two escapes make one character, as JSON writes them.
        joined = text.encode("utf-16", "surrogatepass")
        try:
            text = joined.decode("utf-16")
        except UnicodeDecodeError as error:
            raise ScalarFault("has half of a surrogate pair, which is no character") from error
    if "\0" in text:
        raise ScalarFault("has the character U+0000, which no text may have")
    return Scalar(Kind.TEXT, text)


def _read_null(_: yaml.ScalarNode) -> Scalar:
    return Scalar(Kind.NULL, "null")


def _read_truth(node: yaml.ScalarNode) -> Scalar:
    word = node.value.lower()
    if word in {"true", "false"}:
        return Scalar(Kind.TRUTH, word)
    meant = "true" if word in {"yes", "on"} else "false"
    raise ScalarFault(f'YAML may read {node.value} as {meant}: write {meant}, or "{node.value}"')


def _read_number(node: yaml.ScalarNode) -> Scalar:
    text = node.value.removeprefix("+")
    match = _JSON_NUMBER.fullmatch(text)
    if match is None:
        if text.lower().endswith((".inf", ".nan")):
            raise ScalarFault(f"{node.value} is a number that JSON does not have")
        raise ScalarFault(
            f'YAML versions read {node.value} differently: write it in decimal, or "{node.value}" '
            "for the text"
        )
    if match[1] is None and match[2] is None:
        return Scalar(Kind.WHOLE, text)
    if math.isinf(float(text)):
        raise ScalarFault(f"{node.value} is larger than any number that JSON readers keep")
    return Scalar(Kind.NUMBER, text)


def _refuse_date(node: yaml.ScalarNode) -> Scalar:
    raise ScalarFault(f'YAML reads {node.value} as a date: write "{node.value}" to keep the text')


def _refuse_sign(node: yaml.ScalarNode) -> Scalar:
    raise ScalarFault(f'YAML reads {node.value} as a sign of its own: write "{node.value}"')


_READERS = {
    "str": _read_text,
    "null": _read_null,
    "bool": _read_truth,
    "int": _read_number,
    "float": _read_number,
    "timestamp": _refuse_date,
    "merge": _refuse_sign,
    "value": _refuse_sign,
}


def _short(tag: str) -> str:
    return f"!!{tag.removeprefix(_TAG)}" if tag.startswith(_TAG) else tag
