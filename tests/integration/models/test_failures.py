"""Failures of providers: which are tried again, and what is told of those that stay."""

import asyncio
import logging
import time
from email.utils import formatdate
from typing import Any

import pytest

from host_service.errors import HostError, InvalidArgument, NotFound
from host_service.models.answers import Question
from tests.integration.models.asking import KEY, Asking
from tests.integration.models.torture_server import (
    Reply,
    Request,
    TortureServer,
    chunk,
    events,
    json_reply,
    said,
    streamed,
)


def refusing(status: int, message: str = "no", **more: Any) -> Reply:
    """Return a reply that is an error, in the provider's usual words."""
    return json_reply({"error": {"message": message, **more}}, status=status)


@pytest.mark.parametrize(
    ("reply", "reason", "kind"),
    [
        (refusing(401, "Incorrect API key"), "RUNTIME_ERROR", "authentication"),
        (refusing(403), "RUNTIME_ERROR", "authentication"),
        (refusing(402), "RUNTIME_ERROR", "quota"),
        (refusing(429, code="insufficient_quota"), "RUNTIME_ERROR", "quota"),
        (refusing(404, "no such model"), "RUNTIME_ERROR", "not_found"),
        (refusing(400, code="context_length_exceeded"), "INVALID_ARGUMENT", "context_too_long"),
        (
            refusing(400, "This model's maximum context length is 8192 tokens"),
            "INVALID_ARGUMENT",
            "context_too_long",
        ),
        (
            json_reply({"object": "error", "message": "prompt is too long: 9 > 8"}, status=400),
            "INVALID_ARGUMENT",
            "context_too_long",
        ),
        (refusing(413), "INVALID_ARGUMENT", "context_too_long"),
        (refusing(400, code="content_filter"), "INVALID_ARGUMENT", "content_filter"),
        (refusing(400, "temperature: too hot", param="temperature"), "INVALID_ARGUMENT", "refused"),
        (json_reply({"detail": [{"loc": ["body"]}]}, status=422), "INVALID_ARGUMENT", "refused"),
        (Reply(status=301, headers={"location": "/elsewhere"}), "RUNTIME_ERROR", "bad_answer"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
async def test_failure_that_stays_is_told_at_once(
    server: TortureServer, asking: Asking, reply: Reply, reason: str, kind: str, whole: bool
) -> None:
    server.answer(reply)
    error = await asking.refusal() if whole else (await asking.stream()).error
    assert error is not None
    assert (error.reason, error.facts["model_error"]) == (reason, kind)
    assert error.facts["provider_status"] == str(reply.status)
    assert error.facts["model_id"] == "chat"
    assert "answer_begun" not in error.facts
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_failure_that_passes_is_tried_again(
    server: TortureServer, asking: Asking, status: int
) -> None:
    failing = json_reply({"error": "busy"}, status=status, retry_after_ms="1")
    server.answer(failing, failing, said("at last"))
    assert (await asking.stream()).whole.text == "at last"
    first, *others = server.requests
    assert [each.text for each in others] == [first.text] * 2


@pytest.mark.parametrize(
    "failing",
    [
        Reply(cut=True),
        Reply(body=events({"choices": []}, done=False), cut=True),
        streamed({"error": {"message": "overloaded", "code": 503}, "retry_after": 0}),
        streamed({"error": {"message": "Rate limit reached", "type": "rate_limit_exceeded"}}),
    ],
    ids=["nothing", "no-token", "error-first", "limit-first"],
)
async def test_stream_that_fails_before_its_first_token_is_tried_again(
    server: TortureServer, asking: Asking, failing: Reply
) -> None:
    server.answer(failing, said("at last"))
    assert (await asking.stream()).whole.text == "at last"


@pytest.mark.parametrize(
    "first",
    [
        chunk("a"),
        chunk(reasoning_content="hm"),
        chunk(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f"}}]),
    ],
)
async def test_nothing_is_tried_again_after_the_first_token(
    server: TortureServer, asking: Asking, first: object
) -> None:
    server.answer(Reply(body=events(first, done=False), cut=True), said("twice"))
    heard = await asking.stream()
    assert heard.error is not None
    assert heard.error.facts["answer_begun"] == "true"
    assert len(server.requests) == 1


async def test_attempts_are_counted(server: TortureServer, asking: Asking) -> None:
    server.answer(json_reply({"error": "busy"}, status=503, retry_after_ms="1"))
    error = await asking.refusal()
    assert (error.reason, error.facts["model_error"]) == ("UNAVAILABLE", "unavailable")
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("headers", "least"),
    [({"retry-after": "1"}, 1.0), ({"retry-after-ms": "700", "retry-after": "20"}, 0.7)],
)
async def test_provider_says_when(
    server: TortureServer, asking: Asking, headers: dict[str, str], least: float
) -> None:
    server.answer(Reply(status=429, headers=headers), said("later"))
    began = time.monotonic()
    assert (await asking.ask()).text == "later"
    assert time.monotonic() - began >= least


async def test_wait_that_is_too_long_is_left_to_who_asked(
    server: TortureServer, asking: Asking
) -> None:
    at = formatdate(time.time() + 3600, usegmt=True)
    server.answer(Reply(status=429, headers={"retry-after": at}))
    error = await asking.refusal()
    assert error.reason == "RATE_LIMITED"
    assert error.retry_after_seconds is not None
    assert 3500 < error.retry_after_seconds <= 3600
    assert len(server.requests) == 1


async def test_nobody_waits_for_an_attempt_past_the_deadline(
    server: TortureServer, asking: Asking
) -> None:
    server.answer(Reply(status=429, headers={"retry-after": "20"}))
    error = await asking.refusal(patience_seconds=10)
    assert (error.reason, error.retry_after_seconds) == ("RATE_LIMITED", 20.0)
    assert len(server.requests) == 1


async def test_nobody_there_is_unavailable(asking: Asking) -> None:
    asking.change("chat", base_url="http://127.0.0.1:1/v1")
    error = await asking.refusal()
    assert (error.reason, error.facts["model_error"]) == ("UNAVAILABLE", "unavailable")


async def test_silence_is_a_timeout(server: TortureServer, asking: Asking) -> None:
    asking.limit(model_silence_seconds=1.5)
    server.answer(Reply(silent=True))
    error = await asking.refusal()
    assert (error.reason, error.facts["model_error"]) == ("UNAVAILABLE", "timeout")
    server.answer(Reply(body=events(chunk("a"), done=False), then_wait=True))
    heard = await asking.stream()
    assert (heard.text, heard.answer) == ("a", None)
    assert heard.error is not None
    assert heard.error.facts["model_error"] == "timeout"
    assert len(server.requests) == 2


async def test_huge_error_is_an_excerpt(server: TortureServer, asking: Asking) -> None:
    page = b"<html>\n<body>" + b"very wrong " * 1_000_000
    server.answer(Reply(body=page, status=400, headers={"content-type": "text/html"}))
    error = await asking.refusal()
    assert len(error.message) < 1000
    assert "very wrong very wrong" in error.message
    assert "\n" not in error.message


async def test_error_without_an_end_is_not_waited_for(
    server: TortureServer, asking: Asking
) -> None:
    page = b"x" * 200_000
    server.answer(Reply(body=page, status=400, then_wait=True))
    await asking.refusal()
    await server.requests[0].closed.wait()


@pytest.mark.parametrize("status", [401, 400, 429, 500, 301])
async def test_key_is_nowhere_but_in_the_request(
    server: TortureServer,
    asking: Asking,
    caplog: pytest.LogCaptureFixture,
    status: int,
) -> None:
    caplog.set_level(logging.DEBUG)
    asking.limit(model_attempts=1)
    text = f"bad key {KEY}; sent: Authorization: Bearer {KEY}, not sk-another-1234567890"
    for reply in (
        json_reply({"error": {"message": text, "code": KEY, "param": KEY}}, status=status),
        Reply(body=text.encode(), status=status),
        streamed({"error": {"message": text, "code": status}}),
        streamed(chunk("a"), {"error": text}),
    ):
        server.answer(reply)
        error = (await asking.stream()).error
        assert error is not None
        seen = [repr(error), error.message, *error.facts.values(), *map(str, error.faults)]
        seen += [str(error.__cause__), repr(error.__context__ and error.__suppress_context__)]
        seen += [record.getMessage() + str(record.exc_info) for record in caplog.records]
        seen += [span.to_json() for span in asking.spans.get_finished_spans()]
        assert not [each for each in seen if KEY in each or "another-12345" in each]
        assert any("[hidden]" in each for each in seen)
    assert {each.headers["authorization"] for each in server.requests} == {f"Bearer {KEY}"}


async def test_key_that_cannot_be_sent_is_told_without_it(asking: Asking) -> None:
    for key in ("two\nlines-of-a-key", "schlüssel-123456", "with space"):
        asking.key = key
        error = await asking.refusal()
        assert error.facts["model_error"] == "authentication"
        assert key.split()[0] not in error.message


async def test_environment_of_another_provider_is_not_sent(
    server: TortureServer, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-of-the-environment")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-environment")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-the-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/of-the-environment")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Secret: of-the-environment")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    asking.key = None
    server.answer(said("hello"))
    assert (await asking.ask()).text == "hello"
    (request,) = server.requests
    assert "authorization" not in request.headers
    assert "of-the-environment" not in str(request.headers)


async def test_changed_key_is_used_from_the_next_call_on(
    server: TortureServer, asking: Asking
) -> None:
    server.answer(said("hello"))
    await asking.ask()
    asking.key = "another-key-0123456789"
    await asking.ask()
    sent = [each.headers["authorization"] for each in server.requests]
    assert sent == [f"Bearer {KEY}", "Bearer another-key-0123456789"]


async def test_what_is_under_way_ends_with_the_key_that_it_began_with(
    server: TortureServer, asking: Asking
) -> None:
    go = asyncio.Event()
    server.answer(said("first", until=go), said("second"))
    first = asyncio.create_task(asking.ask())
    await server.arrived()
    asking.key = "another-key-0123456789"
    assert (await asking.ask()).text == "second"
    go.set()
    assert (await first).text == "first"


async def test_arguments_win_over_options_and_numbers_keep_their_digits(
    server: TortureServer, asking: Asking
) -> None:
    asking.change(
        "chat", options_json='{"seed": 9007199254740993, "top_p": 0.10, "stop": ["a"], "user": "u"}'
    )
    server.answer(said("hello"))
    await asking.ask(
        Question.of_text(
            "hi", extra_args_json='{"temperature": 0.20, "user": "v", "x": {"n": 1e400}}'
        )
    )
    (request,) = server.requests
    assert '"seed":9007199254740993' in request.text
    assert '"top_p":0.10,' in request.text
    assert '"temperature":0.20,' in request.text
    assert '"x":{"n":1e400}' in request.text
    assert request.body["user"] == "v"
    assert request.body["model"] == "chat-model"


@pytest.mark.parametrize("name", ["model", "messages", "stream", "tools", "tool_choice", "n"])
async def test_arguments_cannot_make_another_request_of_it(
    server: TortureServer, asking: Asking, name: str
) -> None:
    server.answer(said("hello"))
    question = Question.of_text("hi", extra_args_json=f'{{"{name}": 1}}')
    error = await asking.refusal(question)
    assert isinstance(error, InvalidArgument)
    assert [fault.field for fault in error.faults] == [f"extra_args_json.{name}"]
    assert not server.requests


@pytest.mark.parametrize(
    "error",
    [
        {"message": "Unrecognized request argument supplied: stream_options"},
        {"message": "Unknown parameter", "param": "stream_options"},
    ],
)
async def test_provider_that_cannot_tell_the_cost_of_a_stream_is_not_asked(
    server: TortureServer, asking: Asking, error: dict[str, str]
) -> None:
    def old(request: Request) -> Reply:
        return refusing(400, **error) if "stream_options" in request.body else said("hello")

    server.answer(old)
    for _ in range(2):
        answer = (await asking.stream()).whole
        assert (answer.text, answer.usage) == ("hello", None)
    # It is remembered.
    assert len(server.requests) == 3


@pytest.mark.parametrize("base_url", ["http://[bad/v1", "http://host:port/v1"])
async def test_base_url_that_is_none_is_an_operators_matter(asking: Asking, base_url: str) -> None:
    asking.change("chat", base_url=base_url)
    error = await asking.refusal()
    assert (error.reason, error.facts["model_error"]) == ("RUNTIME_ERROR", "not_found")


TOOL = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("", None),
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("clock", {"type": "function", "function": {"name": "clock"}}),
    ],
)
async def test_choice_of_a_tool(
    server: TortureServer, asking: Asking, choice: str, sent: object
) -> None:
    server.answer(said("hello"))
    messages = ({"role": "user", "content": "hi"},)
    await asking.ask(Question(messages=messages, tools=(TOOL,), tool_choice=choice))
    (request,) = server.requests
    assert request.body.get("tool_choice") == sent
    assert request.body["tools"] == [TOOL]


@pytest.mark.parametrize(("tools", "choice"), [((), "required"), ((TOOL,), "weather")])
async def test_choice_of_a_tool_that_there_is_not(
    server: TortureServer, asking: Asking, tools: Any, choice: str
) -> None:
    messages = ({"role": "user", "content": "hi"},)
    error = await asking.refusal(Question(messages=messages, tools=tools, tool_choice=choice))
    assert [fault.field for fault in error.faults] == ["tool_choice"]


async def test_model_that_is_not_there_or_of_another_kind(asking: Asking) -> None:
    with pytest.raises(NotFound):
        await asking.calls.ask("absent", Question.of_text("hi"))
    with pytest.raises(InvalidArgument) as raised:
        await asking.calls.ask("embedding", Question.of_text("hi"))
    assert [fault.field for fault in raised.value.faults] == ["model_id"]


async def test_spans_name_the_model_and_what_it_cost_and_no_text(
    server: TortureServer, asking: Asking
) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    server.answer(streamed(chunk("marmalade"), {**chunk(finish="stop"), "usage": usage}))
    await asking.stream(Question.of_text("jam"))
    server.answer(refusing(401))
    await asking.stream()
    good, bad = asking.spans.get_finished_spans()
    assert good.name == "chat chat-model"
    assert dict(good.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "chat-model",
        "gen_ai.response.model": "gpt-served",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 2,
        "runmesh.model.id": "chat",
    }
    assert (bad.attributes or {})["error.type"] == "authentication"
    assert not [each for each in (good, bad) if "marmalade" in each.to_json()]


async def test_closed_calls_close_connections(server: TortureServer, asking: Asking) -> None:
    server.answer(Reply(body=events(chunk("a"), done=False), then_wait=True))
    task = asyncio.create_task(asking.stream())
    await server.arrived()
    await asking.calls.close()
    await server.requests[0].closed.wait()
    heard = await task
    assert isinstance(heard.error, HostError)
