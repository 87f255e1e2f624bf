"""Any cut of a stream's bytes gives the same answer, and its pieces are the answer."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from host_service.models.answers import Answer, Delta
from host_service.models.assembly import AnswerAssembly
from host_service.models.sse import Record, SseReader

# Any text, halves of characters and U+0000 among it.
TEXTS = st.text(st.characters(), max_size=20)
FRAGMENTS = st.fixed_dictionaries(
    {
        "function": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["clock", "wea", "ther", ""]) | st.none(),
                "arguments": TEXTS | st.none() | st.dictionaries(TEXTS, st.integers()),
            },
        )
    },
    optional={
        "index": st.integers(0, 2) | st.none(),
        "id": st.sampled_from(["a", "b", ""]) | st.none(),
    },
)
DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "content": TEXTS | st.none(),
        "reasoning_content": TEXTS,
        "tool_calls": st.lists(FRAGMENTS, max_size=3),
    },
)
CHUNKS = st.fixed_dictionaries(
    {"choices": st.lists(st.fixed_dictionaries({"delta": DELTAS | st.none()}), max_size=1)},
    optional={"usage": st.fixed_dictionaries({"prompt_tokens": st.integers(0, 9)})},
)
ENDINGS = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Make a stream, in which lines end in one way or another and comments come between."""
    ending = draw(ENDINGS)
    records = [
        # Escaped, halves of characters are JSON; unescaped, they are no UTF-8 and become U+FFFD.
        json.dumps(chunk) if draw(st.booleans()) else json.dumps(chunk, ensure_ascii=False)
        for chunk in draw(st.lists(CHUNKS, max_size=8))
    ]
    lines = [f"data: {record}{ending}{ending}" for record in [*records, "[DONE]"]]
    if draw(st.booleans()):
        lines.insert(draw(st.integers(0, len(lines))), f": comment{ending}")
    return b"\xef\xbb\xbf" + "".join(lines).encode("utf-8", "surrogatepass")


# A machine may be slow without an example being so.
_quietly = settings(max_examples=100, deadline=None)


def assembled(chunks: Sequence[bytes]) -> tuple[Answer, list[Delta]]:
    """Return the answer that a stream in these cuts gives, and its pieces."""
    numbers = itertools.count()
    assembly = AnswerAssembly(
        model_id="m", most_bytes=10**9, new_id=lambda: f"made-{next(numbers)}"
    )
    reader = SseReader(most_bytes=10**9)
    records: list[Record] = [record for chunk in chunks for record in reader.feed(chunk)]
    records += reader.finish()
    deltas = [delta for record in records for delta in assembly.take(record)]
    deltas += assembly.end()
    return assembly.answer(), deltas


@_quietly
@given(data=streams(), cuts=st.lists(st.integers(0, 4000), max_size=12))
def test_any_cut_gives_the_same_answer(data: bytes, cuts: list[int]) -> None:
    whole, _ = assembled([data])
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [data[begin:end] for begin, end in itertools.pairwise(places)]
    assert assembled(pieces)[0] == whole
    single = [bytes([byte]) for byte in data]
    assert assembled(single)[0] == whole


@_quietly
@given(data=streams())
def test_pieces_are_the_answer(data: bytes) -> None:
    answer, deltas = assembled([data])
    assert "".join(delta.text for delta in deltas) == answer.text
    assert "".join(delta.reasoning_text for delta in deltas) == (answer.reasoning_text or "")
    calls: dict[int, list[str]] = {}
    for fragment in (each for delta in deltas for each in delta.tool_calls):
        if fragment.index in calls:
            assert (fragment.id, fragment.name) == ("", "")
            calls[fragment.index][2] += fragment.arguments
        else:
            assert fragment.id
            assert fragment.name
            calls[fragment.index] = [fragment.id, fragment.name, fragment.arguments]
    assert sorted(calls) == list(range(len(answer.tool_calls)))
    assert [calls[index] for index in sorted(calls)] == [
        [each.id, each.name, each.arguments_json] for each in answer.tool_calls
    ]
    assert len({call.id for call in answer.tool_calls}) == len(answer.tool_calls)


@_quietly
@given(data=streams())
def test_answer_can_be_sent(data: bytes) -> None:
    answer, _ = assembled([data])
    texts: list[Any] = [answer.text, answer.reasoning_text or ""]
    texts += [each.arguments_json for each in answer.tool_calls]
    for text in texts:
        text.encode()
        assert "\0" not in text
