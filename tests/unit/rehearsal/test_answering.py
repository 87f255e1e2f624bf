"""What the rehearsal model says, and which tool it calls."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_service.rehearsal.answering import answer
from host_service.rehearsal.replies import chunks, completion
from tests.unit.rehearsal.asked import ADD, TIME, WEATHER, Said, body, called, request, result

_PASSAGES = """\
Passages that were found for what was said.

[1] docs/other.md (docs, from character 0)
Apples are red. Pears are green.

[2] docs/security.md (docs, from character 120)
A run has a token. The run token protects the host: a call without it is refused.

It dies with the run.

what does the run token protect?"""

_ELEMENTS = """\
<passage source="docs/security.md">The run token protects the host.</passage>
<passage source="docs/other.md">Apples are red.</passage>

What does the run token protect?"""


def test_it_says_what_it_is_and_what_it_was_told() -> None:
    told = answer(request("hello, 世界"))

    assert "rehearsal model, no language model" in told.text
    assert "hello, 世界" in told.text
    assert (told.calls, told.finish_reason) == ((), "stop")


@pytest.mark.parametrize("prompt", [_PASSAGES, _ELEMENTS])
def test_it_quotes_the_passage_that_answers_with_its_source(prompt: str) -> None:
    told = answer(request(prompt)).text

    assert "The run token protects the host" in told
    assert "docs/security.md" in told
    assert "Apples" not in told
    assert "does the run token protect?”" in told


def test_passages_that_have_nothing_of_it_are_not_quoted() -> None:
    told = answer(request(_ELEMENTS.replace("run token protect?", "moon weigh?"))).text

    assert "None of the passages" in told
    assert ">" not in told


def test_passages_may_stand_in_the_instructions() -> None:
    passage = '<document title="a.md">The moon weighs much.</document>'
    told = answer(request({"role": "system", "content": passage}, "what does the moon weigh?")).text

    assert "The moon weighs much." in told
    assert "a.md" in told


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("please add 2 and 40", "math__add", {"a": 2, "b": 40}),
        ("Add 9007199254740993 to -7", "math__add", {"a": 9007199254740993, "b": -7}),
        ("How is the weather in New York?", "weather__current", {"city": "New York"}),
        ("weather in Paris, in fahrenheit", "weather__current",
         {"city": "Paris", "unit": "fahrenheit"}),
        ("“北京”的天气怎么样", "weather__current", {"city": "北京"}),
        ("请问几点钟了", "clock__now", {}),
    ],
)  # fmt: skip
def test_it_calls_the_tool_that_is_asked_for(
    text: str, name: str, arguments: dict[str, object]
) -> None:
    told = answer(request(text, tools=[ADD, WEATHER, TIME]))

    assert [(each.name, json.loads(each.arguments_json)) for each in told.calls] == [
        (name, arguments)
    ]
    assert (told.text, told.finish_reason) == ("", "tool_calls")


@pytest.mark.parametrize("text", ["what does the run token protect?", "hello", "你好", "", "😀"])
def test_no_tool_is_called_for_what_none_of_them_does(text: str) -> None:
    assert answer(request(text, tools=[ADD, WEATHER, TIME])).calls == ()


def test_what_a_tool_gave_is_told_and_the_tool_not_called_again() -> None:
    told = answer(
        request(
            "please add 2 and 40", called("math__add", '{"a":2,"b":40}'), result("42"),
            tools=[ADD, WEATHER],
        )
    )  # fmt: skip

    assert told.calls == ()
    assert "The tool math__add gave: 42" in told.text


def test_passages_that_came_along_are_not_quoted_beside_a_tools_result() -> None:
    prompt = _ELEMENTS.replace("What does the run token protect?", "add 1 and 2 to the run token")
    told = answer(request(prompt, called("math__add"), result("3"), tools=[ADD]))

    assert "gave: 3" in told.text
    assert "docs/security.md" not in told.text


def test_another_tool_follows_for_what_is_left_and_then_no_more() -> None:
    text = "add 2 and 40, and how is the weather in Paris?"
    first = answer(request(text, tools=[ADD, WEATHER]))
    so_far: list[Said] = [text, called(first.calls[0].name), result("done")]
    second = answer(request(*so_far, tools=[ADD, WEATHER]))
    so_far += [called(second.calls[0].name, call_id="call_2"), result("sunny", "call_2")]
    last = answer(request(*so_far, tools=[ADD, WEATHER]))

    assert {first.calls[0].name, second.calls[0].name} == {"math__add", "weather__current"}
    assert last.calls == ()
    assert "done" in last.text
    assert "sunny" in last.text


def test_a_result_of_an_earlier_turn_does_not_keep_a_tool_from_being_called() -> None:
    earlier: list[Said] = [
        "add 1 and 1",
        called("math__add"),
        result("2"),
        {"role": "assistant", "content": "2"},
    ]

    assert answer(request(*earlier, "add 2 and 2", tools=[ADD])).calls[0].name == "math__add"


def test_a_choice_of_tools_is_kept_to() -> None:
    forced = {"type": "function", "function": {"name": "math__add"}}

    assert answer(request("hello", tools=[ADD], tool_choice=forced)).calls[0].name == "math__add"
    assert answer(request("hello", tools=[TIME, ADD], tool_choice="required")).calls
    assert answer(request("add 1 and 2", tools=[ADD], tool_choice="none")).calls == ()


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "math__add"}}]
)
def test_it_comes_to_an_end_even_where_a_call_is_forced(choice: object) -> None:
    asked: list[Said] = ["add 1 and 2", called("math__add"), result("3")]
    told = answer(request(*asked, tools=[ADD], tool_choice=choice))

    assert told.calls == ()
    assert "gave: 3" in told.text


def test_a_tool_whose_arguments_cannot_be_told_is_named_and_not_called() -> None:
    odd = {
        **ADD,
        "parameters": {"type": "object", "required": ["a"], "properties": {"a": {"not": {}}}},
    }
    told = answer(request("please add things", tools=[odd]))

    assert told.calls == ()
    assert "math__add" in told.text


def test_what_it_cannot_see_is_said() -> None:
    parts = [
        {"type": "text", "text": "what is on it?"},
        {"type": "image_url", "image_url": {"url": "data:,"}},
    ]
    told = answer(request({"role": "user", "content": parts}))

    assert "cannot see" in told.text
    assert "image_url" in told.text


_TEXTS = st.text(max_size=200)


@given(_TEXTS, _TEXTS)
def test_the_same_request_gets_the_same_answer_streamed_or_not(system: str, text: str) -> None:
    asked = body({"role": "system", "content": system}, text, tools=[ADD, WEATHER, TIME])
    first, second = (
        request(*asked["messages"], tools=[ADD, WEATHER, TIME]),
        request(*asked["messages"], tools=[ADD, WEATHER, TIME]),
    )
    whole = completion(first, answer(first))

    assert whole == completion(second, answer(second))
    pieces = [json.loads(each.removeprefix(b"data: ")) for each in chunks(first, answer(first))]
    deltas = [each["choices"][0]["delta"] for each in pieces]
    streamed = "".join(delta.get("content") or "" for delta in deltas)
    arguments = "".join(
        call["function"].get("arguments", "")
        for delta in deltas
        for call in delta.get("tool_calls", ())
    )
    message = whole["choices"][0]["message"]
    # What cannot be sent as UTF-8 is not told apart.
    said = (message["content"] or "").encode("utf-8", "replace").decode()
    assert streamed == said
    calls = message.get("tool_calls", ())
    called_with = "".join(call["function"]["arguments"] for call in calls)
    assert arguments == called_with.encode("utf-8", "replace").decode()
