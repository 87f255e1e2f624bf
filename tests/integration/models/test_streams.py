"""Streams as providers send them: legal but odd, faulty, and cut anywhere."""

import asyncio
import json
from typing import Any

import pytest

from host_service.models.answers import CalledTool, Delta, Usage
from tests.integration.models.asking import HELLO, Asking
from tests.integration.models.torture_server import (
    Reply,
    TortureServer,
    chunk,
    completion,
    events,
    json_reply,
    said,
    streamed,
)

CHINESE = "你好\uff0c世界 🎉 ça va? e\u0301 \u200d👩‍👩‍👧"
TOTALS = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("piece", [1, 2, 3, 7, 0])
async def test_bytes_may_be_cut_anywhere(
    server: TortureServer, asking: Asking, ending: str, piece: int
) -> None:
    body = events(
        ": hello",
        *(chunk(character) for character in CHINESE),
        chunk(finish="stop"),
        {"choices": [], "usage": TOTALS},
        ending=ending,
    )
    server.answer(Reply(body=b"\xef\xbb\xbf" + body, piece=piece))
    heard = await asking.stream()
    assert heard.whole.text == CHINESE
    assert heard.whole.usage == Usage(model_id="chat", input_tokens=11, output_tokens=7)


async def test_what_is_legal_but_odd_is_passed_over(server: TortureServer, asking: Asking) -> None:
    server.answer(
        streamed(
            ": a comment",
            "retry: 3000",
            "event: ping",
            "event: ping\ndata: {}",
            "id: 7",
            "data:",
            "data: null",
            "data: 3",
            "unknown: field",
            {"choices": []},
            {"choices": None},
            {"choices": [None]},
            {"choices": [{"index": 0}]},
            {"choices": [{"index": 0, "delta": None, "finish_reason": None}]},
            {"choices": [{"delta": {"role": "assistant", "content": None}}]},
            chunk("a", role="assistant"),
            ": another",
            {**chunk("b"), "usage": None},
            chunk("", finish=""),
            'data:{"choices":[{"delta":\ndata: {"content":"c"}}]}',
            {"choices": [{"index": 1, "delta": {"content": "of another choice"}}]},
            chunk(finish="stop"),
            {"choices": [], "usage": TOTALS},
        )
    )
    answer = (await asking.stream()).whole
    assert (answer.text, answer.finish_reason) == ("abc", "stop")
    assert answer.usage == Usage(model_id="chat", input_tokens=11, output_tokens=7)
    assert answer.response_model == "gpt-served"


@pytest.mark.parametrize(
    ("reports", "known"),
    [
        ([None, TOTALS], {"input_tokens": 11, "output_tokens": 7}),
        (
            [{"prompt_tokens": 11, "completion_tokens": each} for each in range(8)],
            {"input_tokens": 11, "output_tokens": 7},
        ),
        (
            [TOTALS, {"prompt_tokens": 0, "completion_tokens": 0}],
            {"input_tokens": 11, "output_tokens": 7},
        ),
        ([{"completion_tokens": 7}], {"output_tokens": 7}),
        ([None, None], None),
        ([{}], None),
        ([{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}], None),
        ([{"prompt_tokens": "many", "completion_tokens": True}], None),
        (
            [
                {
                    "prompt_tokens": 9007199254740993,
                    "completion_tokens": 4,
                    "prompt_tokens_details": {"cached_tokens": 5},
                    "completion_tokens_details": {"reasoning_tokens": 3},
                }
            ],
            {
                "input_tokens": 9007199254740993,
                "output_tokens": 4,
                "cache_read_tokens": 5,
                "reasoning_tokens": 3,
            },
        ),
    ],
    ids=[
        "null-first",
        "cumulative",
        "zeros-last",
        "half",
        "never",
        "empty",
        "zeros",
        "words",
        "details",
    ],
)
async def test_usage_is_the_latest_of_each_count_and_unknown_is_absent(
    server: TortureServer, asking: Asking, reports: list[Any], known: dict[str, int] | None
) -> None:
    server.answer(streamed(chunk("a"), *({**chunk("b"), "usage": each} for each in reports)))
    usage = (await asking.stream()).whole.usage
    assert usage == (None if known is None else Usage(model_id="chat", **known))


@pytest.mark.parametrize(
    "record",
    [
        {"error": {"message": "GPU caught fire", "code": 500}},
        {"error": "GPU caught fire"},
        {"error": {"message": "GPU caught fire", "type": "server_error"}, "choices": []},
        {"object": "error", "message": "GPU caught fire"},
        'event: error\ndata: {"message": "GPU caught fire"}',
        'event: error\ndata: {"error": {"message": "GPU caught fire"}}',
        "event: error\ndata: GPU caught fire",
    ],
)
async def test_error_inside_a_stream_is_no_success(
    server: TortureServer, asking: Asking, record: object
) -> None:
    server.answer(streamed(chunk("half an "), chunk("answer"), record))
    heard = await asking.stream()
    assert heard.text == "half an answer"
    assert heard.answer is None
    assert heard.error is not None
    assert heard.error.reason == "UNAVAILABLE"
    assert "GPU caught fire" in heard.error.message
    assert heard.error.facts["answer_begun"] == "true"
    # Nothing is said twice.
    assert len(server.requests) == 1


async def test_end_of_an_answer_with_an_error_is_a_failure(
    server: TortureServer, asking: Asking
) -> None:
    server.answer(streamed(chunk("a"), chunk(finish="error")))
    heard = await asking.stream()
    assert (heard.text, heard.answer) == ("a", None)


@pytest.mark.parametrize(
    "body",
    [
        events(chunk("half"), done=False),
        events(chunk("half"), done=False) + b'data: {"choices": [{"delta": {"con',
        events(chunk("half"), done=False) + b"data: ",
    ],
    ids=["between", "in-json", "in-line"],
)
@pytest.mark.parametrize("cut", [True, False])
async def test_cut_stream_is_a_failure_and_what_came_is_valid(
    server: TortureServer, asking: Asking, body: bytes, cut: bool
) -> None:
    server.answer(Reply(body=body, cut=cut))
    heard = await asking.stream()
    assert (heard.text, heard.answer) == ("half", None)
    assert heard.error is not None
    assert (heard.error.reason, heard.error.facts["model_error"]) == ("UNAVAILABLE", "cut")
    assert len(server.requests) == 1


@pytest.mark.parametrize("cut", [True, False])
async def test_answer_that_said_why_it_ended_is_whole_without_done(
    server: TortureServer, asking: Asking, cut: bool
) -> None:
    body = events(chunk("all of it"), chunk(finish="length"), done=False)
    server.answer(Reply(body=body, cut=cut))
    answer = (await asking.stream()).whole
    assert (answer.text, answer.finish_reason) == ("all of it", "length")


async def test_last_record_needs_no_empty_line_behind_it(
    server: TortureServer, asking: Asking
) -> None:
    last = b"data: " + json.dumps(chunk("b", finish="stop")).encode()
    server.answer(Reply(body=events(chunk("a"), done=False) + last))
    assert (await asking.stream()).whole.text == "ab"


async def test_nobody_waits_for_a_provider_that_has_said_its_last_word(
    server: TortureServer, asking: Asking
) -> None:
    server.answer(said("done", then_wait=True))
    assert (await asking.stream()).whole.text == "done"
    await server.requests[0].closed.wait()


async def test_large_deltas_come_whole(server: TortureServer, asking: Asking) -> None:
    text = "界x" * (512 * 1024)
    server.answer(streamed(chunk(text), chunk(text), chunk(finish="stop")))
    assert (await asking.stream()).whole.text == text * 2


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["a\\ud83d", "\\ude00b"], "a😀b"),
        (["\\ud83d", "", "\\ude00"], "😀"),
        (["\\ud83d", "b"], "\ufffdb"),
        (["\\ude00b"], "\ufffdb"),
        (["a\\ud83d"], "a\ufffd"),
        (["a\\u0000b"], "a\ufffdb"),
    ],
)
async def test_halves_of_characters_are_joined_and_what_cannot_be_is_replaced(
    server: TortureServer, asking: Asking, pieces: list[str], text: str
) -> None:
    records = [f'data: {{"choices":[{{"delta":{{"content":"{piece}"}}}}]}}' for piece in pieces]
    server.answer(streamed(*records, piece=1))
    assert (await asking.stream()).whole.text == text


async def test_bytes_that_are_no_utf8_are_replaced(server: TortureServer, asking: Asking) -> None:
    body = events("data: @").replace(b"@", b'{"choices":[{"delta":{"content":"a\xff\xe4\xbdb"}}]}')
    server.answer(Reply(body=body, piece=1))
    assert (await asking.stream()).whole.text == "a\ufffd\ufffdb"


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"reasoning_content": "hm", "reasoning": "hm"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
        {"content": [{"type": "reasoning", "text": "hm"}]},
    ],
)
async def test_reasoning_is_kept_apart(
    server: TortureServer, asking: Asking, delta: dict[str, Any]
) -> None:
    server.answer(streamed(chunk(**delta), chunk("so"), chunk(finish="stop")))
    answer = (await asking.stream()).whole
    assert (answer.reasoning_text, answer.text) == ("hm", "so")


@pytest.mark.parametrize(
    "delta",
    [
        {"content": ["no", {"type": "text", "text": "pe"}]},
        {"content": [{"type": "output_text", "text": "nope"}]},
        {"refusal": "nope"},
        {"content": [{"type": "refusal", "refusal": "nope"}]},
    ],
)
async def test_text_may_come_as_parts_or_as_a_refusal(
    server: TortureServer, asking: Asking, delta: dict[str, Any]
) -> None:
    server.answer(streamed(chunk(**delta), chunk(finish="stop")))
    assert (await asking.stream()).whole.text == "nope"


@pytest.mark.parametrize(
    ("finish", "calls", "told"),
    [
        (None, False, "stop"),
        ("", False, "stop"),
        ("end_of_days", False, "end_of_days"),
        ("content_filter", False, "content_filter"),
        ("stop", True, "tool_calls"),
        (None, True, "tool_calls"),
        ("function_call", True, "tool_calls"),
        ("length", True, "length"),
    ],
)
async def test_reason_of_the_end(
    server: TortureServer, asking: Asking, finish: str | None, calls: bool, told: str
) -> None:
    call = {"index": 0, "id": "1", "function": {"name": "f", "arguments": "{}"}}
    deltas = [chunk(tool_calls=[call])] if calls else [chunk("a")]
    server.answer(streamed(*deltas, chunk(finish=finish)))
    assert (await asking.stream()).whole.finish_reason == told


def _call(index: int | None, id: str | None, name: str | None, arguments: Any) -> dict[str, Any]:
    """Return a fragment; what is None is left out."""
    function = {"name": name, "arguments": arguments}
    call = {"index": index, "id": id}
    kept: dict[str, Any] = {key: value for key, value in call.items() if value is not None}
    return {**kept, "function": {k: v for k, v in function.items() if v is not None}}


TWO = (("weather", '{"city": "北京", "n": 1}'), ("clock", '{"zone": "UTC"}'))
DIALECTS: dict[str, list[list[dict[str, Any]]]] = {
    "standard": [
        [_call(0, "a", "weather", "")],
        [_call(0, None, None, '{"city": "北')],
        [_call(0, None, None, '京", "n": 1}')],
        [_call(1, "b", "clock", "")],
        [_call(1, None, None, '{"zone": "UTC"}')],
    ],
    "no-index": [
        [_call(None, "a", "weather", "")],
        [_call(None, None, None, '{"city": "北京", ')],
        [_call(None, None, None, '"n": 1}')],
        [_call(None, "b", "clock", '{"zone"')],
        [_call(None, None, None, ': "UTC"}')],
    ],
    "from-one": [
        [_call(1, "a", "weather", '{"city": "北京", ')],
        [_call(1, None, None, '"n": 1}')],
        [_call(2, "b", "clock", '{"zone": "UTC"}')],
    ],
    "no-id": [
        [_call(0, None, "weather", '{"city": "北京", ')],
        [_call(0, None, None, '"n": 1}')],
        [_call(1, None, "clock", '{"zone": "UTC"}')],
    ],
    "neither": [
        [_call(None, None, "weather", '{"city": "北京", ')],
        [_call(None, None, None, '"n": 1}')],
        [_call(None, None, "clock", '{"zone": ')],
        [_call(None, None, None, '"UTC"}')],
    ],
    "empty-words": [
        [_call(0, "a", "weather", "")],
        [_call(0, "", "", '{"city": "北京", "n": 1}')],
        [_call(1, "b", "clock", "")],
        [_call(1, "", "", '{"zone": "UTC"}')],
    ],
    "repeated": [
        [_call(0, "a", "weather", '{"city": "北京", ')],
        [_call(0, "a", "weather", '"n": 1}')],
        [_call(1, "b", "clock", '{"zone": ')],
        [_call(1, "b", "clock", '"UTC"}')],
    ],
    "ids-alone": [
        [_call(None, "a", "weather", '{"city": "北京", ')],
        [_call(None, "b", "clock", '{"zone": ')],
        [_call(None, "a", None, '"n": 1}')],
        [_call(None, "b", None, '"UTC"}')],
    ],
    "split-name": [
        [_call(0, "a", "wea", None)],
        [_call(0, None, "ther", None)],
        [_call(0, None, None, '{"city": "北京", "n": 1}')],
        [_call(1, "b", "cl", None)],
        [_call(1, None, "clock", '{"zone": "UTC"}')],
    ],
    "index-always-zero": [
        [_call(0, "a", "weather", '{"city": "北京", "n": 1}')],
        [_call(0, "b", "clock", '{"zone": "UTC"}')],
    ],
    "one-chunk": [
        [
            _call(0, "a", "weather", '{"city": "北京", "n": 1}'),
            _call(1, "b", "clock", '{"zone": "UTC"}'),
        ]
    ],
    "one-chunk-nothing-given": [
        [_call(None, None, "weather", '{"city": '), _call(None, None, "clock", '{"zone": ')],
        [_call(None, None, None, '"北京", "n": 1}'), _call(None, None, None, '"UTC"}')],
    ],
    "interleaved": [
        [_call(0, "a", "weather", ""), _call(1, "b", "clock", "")],
        [_call(1, None, None, '{"zone": ')],
        [_call(0, None, None, '{"city": "北京", ')],
        [_call(1, None, None, '"UTC"}')],
        [_call(0, None, None, '"n": 1}')],
    ],
    "object": [
        [_call(0, "a", "weather", {"city": "北京", "n": 1})],
        [_call(1, "b", "clock", {"zone": "UTC"})],
    ],
    "same-id": [
        [_call(0, "a", "weather", '{"city": "北京", ')],
        [_call(0, "a", "weather", '"n": 1}')],
        [_call(1, "a", "clock", '{"zone": ')],
        [_call(1, "a", "clock", '"UTC"}')],
    ],
}


@pytest.mark.parametrize("piece", [0, 1])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_two_calls_are_two_calls_in_every_dialect(
    server: TortureServer, asking: Asking, dialect: str, piece: int
) -> None:
    fragments = DIALECTS[dialect]
    server.answer(
        streamed(*(chunk(tool_calls=each) for each in fragments), chunk(finish="stop"), piece=piece)
    )
    answer = (await asking.stream()).whole
    told = [(call.name, json.loads(call.arguments_json)) for call in answer.tool_calls]
    assert told == [(name, json.loads(arguments)) for name, arguments in TWO]
    ids = [call.id for call in answer.tool_calls]
    assert len(set(ids)) == 2
    if dialect not in ("no-id", "neither", "one-chunk-nothing-given", "same-id"):
        assert ids == ["a", "b"]
    assert answer.finish_reason == "tool_calls"


async def test_legacy_call_is_a_call(server: TortureServer, asking: Asking) -> None:
    server.answer(
        streamed(
            chunk(function_call={"name": "weather"}),
            chunk(function_call={"arguments": '{"n": '}),
            chunk(function_call={"arguments": "1}"}),
            chunk(finish="function_call"),
        )
    )
    (call,) = (await asking.stream()).whole.tool_calls
    assert (call.name, call.arguments_json) == ("weather", '{"n": 1}')


async def test_numbers_of_arguments_that_come_as_an_object_keep_their_digits(
    server: TortureServer, asking: Asking
) -> None:
    record = (
        'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f",'
        '"arguments":{"n":9007199254740993,"x":1.10000000000000000001}}}]}}]}'
    )
    server.answer(streamed(record))
    (call,) = (await asking.stream()).whole.tool_calls
    assert call == CalledTool("a", "f", '{"n":9007199254740993,"x":1.10000000000000000001}')


async def test_malformed_arguments_are_passed_on(server: TortureServer, asking: Asking) -> None:
    server.answer(streamed(chunk(tool_calls=[_call(0, "a", "f", '{"half')])))
    (call,) = (await asking.stream()).whole.tool_calls
    assert call.arguments_json == '{"half'


async def test_call_without_arguments_is_a_call(server: TortureServer, asking: Asking) -> None:
    server.answer(streamed(chunk(tool_calls=[_call(0, "a", "f", None)]), chunk(finish="stop")))
    assert (await asking.stream()).whole.tool_calls == (CalledTool("a", "f", ""),)


async def test_whole_answer_to_who_asked_for_a_stream(
    server: TortureServer, asking: Asking
) -> None:
    server.answer(completion({"role": "assistant", "content": "whole"}, usage=TOTALS))
    answer = (await asking.stream()).whole
    assert (answer.text, answer.usage) == (
        "whole",
        Usage(model_id="chat", input_tokens=11, output_tokens=7),
    )


async def test_stream_to_who_asked_for_a_whole_answer(
    server: TortureServer, asking: Asking
) -> None:
    server.answer(said("streamed"))
    assert (await asking.ask()).text == "streamed"
    assert "stream" not in server.requests[0].body


async def test_whole_answer_has_what_a_streamed_one_has(
    server: TortureServer, asking: Asking
) -> None:
    message = {
        "role": "assistant",
        "content": "a\ud83d",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ],
    }
    server.answer(completion(message, finish="tool_calls", usage=TOTALS))
    answer = await asking.ask()
    assert (answer.text, answer.reasoning_text) == ("a\ufffd", "hm")
    assert answer.tool_calls == (CalledTool("a", "f", "{}"),)
    assert answer.usage == Usage(model_id="chat", input_tokens=11, output_tokens=7)


async def test_whole_message_behind_its_pieces_is_not_said_twice(
    server: TortureServer, asking: Asking
) -> None:
    end = {"choices": [{"index": 0, "message": {"content": "once"}, "finish_reason": "stop"}]}
    server.answer(streamed(chunk("once"), end))
    assert (await asking.stream()).whole.text == "once"


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body=b"<html>login</html>", headers={"content-type": "text/html"}),
        Reply(body=b"", headers={"content-type": "application/json"}),
        json_reply([]),
        json_reply({"id": "1"}),
        json_reply({"choices": []}),
    ],
    ids=["html", "nothing", "list", "no-choices", "empty"],
)
@pytest.mark.parametrize("whole", [True, False])
async def test_what_is_no_answer_is_told_as_such(
    server: TortureServer, asking: Asking, reply: Reply, whole: bool
) -> None:
    server.answer(reply)
    error = await asking.refusal() if whole else (await asking.stream()).error
    assert error is not None
    assert (error.reason, error.facts["model_error"]) == ("RUNTIME_ERROR", "bad_answer")


async def test_record_that_is_no_json_is_told(server: TortureServer, asking: Asking) -> None:
    server.answer(streamed(chunk("a"), "data: {broken", chunk("b")))
    heard = await asking.stream()
    assert heard.text == "a"
    assert heard.error is not None
    assert heard.error.facts["model_error"] == "bad_answer"


@pytest.mark.parametrize("limit", ["model_answer_bytes", "model_response_bytes"])
async def test_answer_without_an_end_is_ended(
    server: TortureServer, asking: Asking, limit: str
) -> None:
    asking.limit(**{limit: 20_000})
    server.answer(streamed(*[chunk("x" * 15_000)] * 2, chunk("y" * 30_000)))
    heard = await asking.stream()
    assert heard.error is not None
    assert heard.error.facts["model_error"] == "bad_answer"
    assert len(heard.text) <= 30_000


async def test_leaving_a_stream_closes_the_connection(
    server: TortureServer, asking: Asking
) -> None:
    server.answer(Reply(body=events(chunk("first"), done=False), then_wait=True))
    stream = asking.calls.stream("chat", HELLO)
    async for piece in stream:
        assert isinstance(piece, Delta)
        break
    await stream.aclose()
    await server.requests[0].closed.wait()


@pytest.mark.parametrize("reply", [Reply(silent=True), Reply(then_wait=True)])
async def test_cancelled_call_closes_the_connection(
    server: TortureServer, asking: Asking, reply: Reply
) -> None:
    server.answer(reply)
    task = asyncio.create_task(asking.ask())
    await server.arrived()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.requests[0].closed.wait()
