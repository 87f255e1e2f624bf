"""Each language reads the bytes that another wrote, and nothing is lost on the way."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import permutations

import pytest
from google.protobuf import descriptor_pool, json_format
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tests.contract.golden.files import encode
from tests.contract.golden.messages import golden_messages
from tests.polyglot.examples import TOOLS
from tests.polyglot.wire_programs import WireProgram, Written, wire_program
from tests.polyglot.wire_values import messages, names

pytestmark = pytest.mark.timeout(1800)

LANGUAGES = [language for language in TOOLS if language != "python"]
# prost reads what it does not know, and drops it; it has no JSON either.
DROPS_UNKNOWN = frozenset({"rust"})
WITHOUT_JSON = frozenset({"rust"})


@pytest.fixture(scope="module")
def program() -> Callable[[str], WireProgram]:
    """Gives a language's program; skips, in CI fails, where it cannot be built."""
    return cache(wire_program)


@pytest.fixture(scope="module")
def originals() -> Sequence[Message]:
    """The golden messages, and every message of the contract with values that are easily lost."""
    return [*golden_messages().values(), *messages()]


@pytest.fixture(scope="module")
def written(
    program: Callable[[str], WireProgram], originals: Sequence[Message]
) -> Callable[[str], list[Written]]:
    """Gives what a language makes of the messages that Python wrote."""
    sent = [(name(each), encode(each)) for each in originals]
    return cache(lambda language: program(language).hex(sent))


@pytest.mark.parametrize("language", LANGUAGES)
def test_language_keeps_what_python_wrote(
    language: str, written: Callable[[str], list[Written]], originals: Sequence[Message]
) -> None:
    for original, again in zip(originals, written(language), strict=True):
        check(original, again, language)


@pytest.mark.parametrize(("writer", "reader"), [*permutations(LANGUAGES, 2)])
def test_language_keeps_what_another_wrote(
    writer: str,
    reader: str,
    program: Callable[[str], WireProgram],
    written: Callable[[str], list[Written]],
    originals: Sequence[Message],
) -> None:
    first = written(writer)
    sent = [(name(each), again.data) for each, again in zip(originals, first, strict=True)]
    for original, again in zip(originals, program(reader).hex(sent), strict=True):
        check(original, again, writer, reader)


def test_every_message_is_among_those_that_are_compared(originals: Sequence[Message]) -> None:
    assert {name(each) for each in originals} >= set(names())
    assert len(names()) > 150


@pytest.mark.parametrize("language", [each for each in LANGUAGES if each not in WITHOUT_JSON])
def test_json_of_a_later_version_is_read_without_what_is_new(
    language: str, program: Callable[[str], WireProgram]
) -> None:
    later = {
        "role": "CHAT_ROLE_OF_A_LATER_VERSION",
        "messageId": "msg-1",
        "parts": [{"text": "你好"}, {"hologram": {"url": "https://example.org"}}],
        "mood": {"of": ["a", "later", "version"]},
    }
    usage = {"modelId": "m", "inputTokens": "9007199254740993", "thoughts": 1}
    message, counted = program(language).json(
        [
            ("runmesh.v1.ChatMessage", json.dumps(later)),
            ("runmesh.v1.TokenUsage", json.dumps(usage)),
        ]
    )
    read = parsed("runmesh.v1.ChatMessage", message.data)
    assert json_format.MessageToDict(read) == {
        "messageId": "msg-1",
        "parts": [{"text": "你好"}, {}],
    }
    assert json.loads(counted.json) == {"modelId": "m", "inputTokens": "9007199254740993"}


def check(original: Message, again: Written, *languages: str) -> None:
    """Fails unless a message came back as it was, through languages, in bytes and as JSON."""
    way = f"{name(original)} through {', '.join(languages)}"
    known = without_unknown(original)
    expected = known if DROPS_UNKNOWN & set(languages) else original
    # By their bytes: no NaN is equal to itself.
    assert encode(parsed(name(original), again.data)) == encode(expected), way
    if languages[-1] in WITHOUT_JSON:
        return
    read = json_format.Parse(again.json, type(original)())
    assert encode(read) == encode(known), f"{way}, as JSON"


def name(message: Message) -> str:
    """The full name of a message."""
    return message.DESCRIPTOR.full_name


def parsed(full_name: str, data: bytes) -> Message:
    """Reads a message of a name."""
    return GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(full_name)).FromString(
        data
    )


def without_unknown(message: Message) -> Message:
    """A copy of a message without what its version does not know."""
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return known
