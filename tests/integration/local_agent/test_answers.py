"""The local agent on a real host, with models that a server of the OpenAI protocol serves."""

import base64
import json
from typing import Any

import pytest
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import context_pb2, event_pb2, gateway_pb2, types_pb2

from host_service.testing import RealHost
from tests.integration.local_agent.agents import (
    AGENT,
    FALLBACK,
    PRIMARY,
    called,
    local_agent,
    model,
)
from tests.integration.models.torture_server import (
    Reply,
    TortureServer,
    chunk,
    events,
    json_reply,
    said,
    streamed,
)

TEXT = "你好, 世界 😀 and more"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def messages_of(server: TortureServer, request: int = -1) -> list[Any]:
    """The messages that a model was sent to be answered; what it is asked for notes is not."""
    asked = [each.body for each in server.requests if each.body.get("stream")]
    return list(asked[request]["messages"])


async def transcript(host: RealHost) -> list[tuple[str, str, bool]]:
    """Role, text and whether it was cut, of what the conversation has, oldest first."""
    page = await host.gateway.PageConversation(
        gateway_pb2.PageConversationRequest(conversation_id="conversation"),
        metadata=host.metadata,
    )
    items = [
        (types_pb2.ChatRole.Name(item.role)[10:].lower(), item.text, item.incomplete)
        for item in page.items
    ]
    return items if items[0][0] == "user" else items[::-1]


async def test_answer_comes_through_byte_by_byte_and_is_kept(server: TortureServer) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
    server.answer(streamed(chunk(TEXT), chunk(finish="stop"), usage, piece=1))
    async with local_agent(model(PRIMARY, server)) as host:
        outcome = await host.dispatch("hello")
        kept = await transcript(host)

    assert outcome.status == "COMPLETED", outcome.run
    assert outcome.streamed_text == outcome.text == TEXT
    assert outcome.messages[0].metadata["model"] == PRIMARY
    assert kept == [("user", "hello", False), ("assistant", TEXT, False)]
    (spent,) = outcome.run.usage
    assert (spent.model_id, spent.input_tokens, spent.output_tokens) == (PRIMARY, 9, 4)
    assert messages_of(server)[-1] == {"role": "user", "content": "hello"}


async def test_answer_is_the_same_where_pieces_are_withheld(server: TortureServer) -> None:
    server.answer(streamed(chunk("One, "), chunk("two"), chunk(finish="stop")))
    async with local_agent(model(PRIMARY, server)) as host:
        streamed_one = await host.dispatch("hello")
        named = admin_pb2.GetAgentRequest(agent_id=AGENT)
        agent = (await host.admin.GetAgent(named, metadata=host.metadata)).agent
        agent.delivery.streaming = False
        await host.apply(agent)
        whole = await host.dispatch("hello")

    assert streamed_one.streamed_text == "One, two"
    assert whole.streamed_text == ""
    assert whole.text == streamed_one.text == "One, two"


async def test_second_turn_has_the_first_one_before_it(server: TortureServer) -> None:
    server.answer(said("You said hello."), said("As before."))
    async with local_agent(model(PRIMARY, server)) as host:
        await host.dispatch("hello")
        await host.dispatch("again")

    first, second = messages_of(server, 0), messages_of(server, 1)
    assert second == [
        *first,
        {"role": "assistant", "content": "You said hello."},
        {"role": "user", "content": "again"},
    ]


async def test_fallback_answers_where_the_primary_refuses(server: TortureServer) -> None:
    refusal = json_reply(
        {"error": {"message": "no such key", "code": "invalid_api_key"}}, status=401
    )
    server.answer(refusal, said("Here I am."))
    async with local_agent(model(PRIMARY, server), model(FALLBACK, server)) as host:
        outcome = await host.dispatch("hello")

    assert outcome.text == "Here I am."
    assert outcome.messages[0].metadata["model"] == FALLBACK
    assert [each.body["model"] for each in server.requests] == ["primary-served", "fallback-served"]


async def test_error_in_the_middle_fails_the_run_and_the_text_is_kept(
    server: TortureServer,
) -> None:
    server.answer(streamed(chunk("The answer is "), {"error": {"message": "out of memory"}}))
    async with local_agent(model(PRIMARY, server), model(FALLBACK, server)) as host:
        outcome = await host.dispatch("hello")
        kept = await transcript(host)

    assert outcome.status == "FAILED"
    assert outcome.failure == "local-agent.model_failed"
    assert "out of memory" in outcome.run.failure.message
    assert outcome.text == "The answer is "
    assert kept[-1] == ("assistant", "The answer is ", True)
    assert len(server.requests) == 1, "nothing is said twice"


async def test_connection_that_is_cut_fails_the_run_and_the_next_turn_works(
    server: TortureServer,
) -> None:
    server.answer(
        Reply(body=events(chunk("It is "), done=False), cut=True), said("Here I am again.")
    )
    async with local_agent(model(PRIMARY, server)) as host:
        outcome = await host.dispatch("hello")
        again = await host.dispatch("are you there?")

    assert outcome.failure == "local-agent.model_failed"
    assert again.text == "Here I am again."
    assert any("It is " in str(each["content"]) for each in messages_of(server))


async def test_question_that_is_too_long_is_asked_again_with_less_history(
    server: TortureServer,
) -> None:
    too_long = json_reply(
        {"error": {"message": "maximum context length", "code": "context_length_exceeded"}},
        status=400,
    )
    server.answer(said("word " * 400))
    async with local_agent(model(PRIMARY, server, context_window_tokens=4000)) as host:
        for number in range(6):
            await host.dispatch(f"question {number} " + "word " * 200)
        server.answer(too_long, said("Short."))
        outcome = await host.dispatch("hello")

    assert outcome.text == "Short.", outcome.run
    first, second = (len(json.dumps(messages_of(server, place))) for place in (-2, -1))
    assert second < first
    assert messages_of(server)[-1]["content"] == "hello"


@pytest.mark.parametrize("sees", [True, False])
async def test_picture_reaches_a_model_that_sees(server: TortureServer, sees: bool) -> None:
    server.answer(said("A pixel."))
    abilities = [context_pb2.MODEL_ABILITY_VISION] if sees else []
    said_with = event_pb2.EventInput(text="what is it?")
    said_with.parts.add().text = "what is it?"
    inline = said_with.parts.add().inline
    inline.data, inline.mime_type, inline.name = PNG, "image/png", "pixel.png"
    async with local_agent(model(PRIMARY, server, abilities=abilities)) as host:
        outcome = await host.dispatch(input=said_with)

    assert outcome.status == "COMPLETED", outcome.run
    sent = json.dumps(messages_of(server)[-1])
    assert (base64.b64encode(PNG).decode() in sent) is sees
    assert ("pixel.png" in outcome.text) is not sees
    assert outcome.text.endswith("A pixel.")


async def test_text_file_reaches_the_model_as_text(server: TortureServer) -> None:
    server.answer(said("Five."))
    said_with = event_pb2.EventInput(text="what does it cost?")
    said_with.parts.add().text = "what does it cost?"
    inline = said_with.parts.add().inline
    inline.data, inline.mime_type, inline.name = "Preis: 5 €".encode(), "text/plain", "notes.txt"
    async with local_agent(model(PRIMARY, server)) as host:
        outcome = await host.dispatch(input=said_with)

    assert outcome.text == "Five."
    assert "Preis: 5 €" in messages_of(server)[-1]["content"]


async def test_event_without_words_is_no_message(server: TortureServer) -> None:
    server.answer(said("Welcome!"))
    async with local_agent(model(PRIMARY, server)) as host:
        outcome = await host.dispatch(
            type="group.member_joined", data_json='{"member":9007199254740993}'
        )

    assert outcome.text == "Welcome!"
    sent = messages_of(server)
    assert {each["role"] for each in sent} == {"system"}
    assert "9007199254740993" in sent[-1]["content"]


async def test_half_characters_and_nul_of_a_model_do_no_harm(server: TortureServer) -> None:
    halves = [
        f'data: {{"choices":[{{"index":0,"delta":{{"content":"{content}"}}}}]}}'
        for content in (r"a\ud83d", r"\ude00b\ud83dc\u0000")
    ]
    server.answer(streamed(*halves, chunk(finish="stop")))
    async with local_agent(model(PRIMARY, server)) as host:
        outcome = await host.dispatch("hello")
        again = await host.dispatch("again")

    assert outcome.text == "a😀b\ufffdc\ufffd"
    assert again.status == "COMPLETED"


async def test_wish_for_a_tool_that_there_is_not_is_answered(server: TortureServer) -> None:
    server.answer(called("watch", "{}", text="Let me look."), said("I have no watch."))
    async with local_agent(model(PRIMARY, server)) as host:
        outcome = await host.dispatch("time?")

    assert outcome.text == "Let me look.\n\nI have no watch."
    assert messages_of(server)[-1]["role"] == "tool"
    assert "no tool 'watch'" in messages_of(server)[-1]["content"]
