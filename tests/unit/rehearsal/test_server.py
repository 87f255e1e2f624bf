"""The rehearsal model over its protocol, asked by the official client."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from host_service.configuration.document import ConfigurationError
from host_service.rehearsal.script import ScriptFile
from host_service.rehearsal.server import RehearsalServer
from tests.unit.rehearsal.asked import ADD, body

_HELLO = "hello, 世界 👋"


@pytest.fixture
async def server() -> AsyncIterator[RehearsalServer]:
    """A server that has not begun to serve."""
    server = RehearsalServer()
    yield server
    await server.close()


def _client(url: str, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0)


async def test_it_streams_what_it_says_at_once_otherwise(server: RehearsalServer) -> None:
    asked = body(_HELLO)
    async with _client(await server.base_url(), server.key) as client:
        whole = await client.chat.completions.create(**asked)
        stream = await client.chat.completions.create(
            **asked, stream=True, stream_options={"include_usage": True}
        )
        chunks = [each async for each in stream]

    said = [each.choices[0].delta.content or "" for each in chunks if each.choices]
    assert _HELLO in "".join(said)
    assert "".join(said) == whole.choices[0].message.content
    assert len(said) > 5
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert whole.usage is not None
    assert whole.usage.completion_tokens > 0


async def test_calls_come_in_pieces_that_make_the_same_call(server: RehearsalServer) -> None:
    asked = body("add 2 and 40", tools=[ADD])
    async with _client(await server.base_url(), server.key) as client:
        whole = await client.chat.completions.create(**asked)
        stream = await client.chat.completions.create(**asked, stream=True)
        chunks = [each async for each in stream]

    calls = whole.choices[0].message.tool_calls
    assert calls is not None
    (call,) = calls
    assert call.type == "function"
    pieces = [p for each in chunks for p in each.choices[0].delta.tool_calls or ()]
    functions = [each.function for each in pieces if each.function]
    assert pieces[0].id == call.id
    assert len(pieces) > 2
    assert "".join(each.arguments or "" for each in functions) == call.function.arguments
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("key", ["x", "wrong", "wrong" * 20, "schlüssel"])
async def test_nobody_gets_in_without_the_key(server: RehearsalServer, key: str) -> None:
    url = await server.base_url()
    async with httpx2.AsyncClient(trust_env=False) as client:
        for path in ("models", "chat/completions", "embeddings", "rerank"):
            answer = await client.request(
                "GET" if path == "models" else "POST",
                f"{url}/{path}",
                headers={b"authorization": f"Bearer {key}".encode()},
                json={},
            )
            assert answer.status_code == 401
            assert server.key not in answer.text


async def test_it_is_started_once_and_listens_on_loopback(server: RehearsalServer) -> None:
    urls = await asyncio.gather(*(server.base_url() for _ in range(10)))
    assert len(set(urls)) == 1
    assert urls[0].startswith("http://127.0.0.1:")


async def test_nothing_listens_before_the_first_call_and_after_the_last() -> None:
    server = RehearsalServer()
    await server.close()
    url = await server.base_url()
    await server.close()
    async with httpx2.AsyncClient(trust_env=False) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get(f"{url}/models")


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"{", "the body must be JSON"),
        (b"[]", "the body must be a JSON object"),
        (b'{"model": "x", "messages": []}', "messages must be a list with a message"),
        (b'{"model": "x", "messages": [{}]}', "messages[0] must be an object with a role"),
        (b'{"messages": [{"role": "user", "content": "x"}]}', "model must be a name"),
        (b'{"model": "x", "messages": [{"role": "user", "content": 4}]}', "messages[0].content"),
        (b"[" * 100_000, "the body must be JSON"),
    ],
)
async def test_what_is_no_request_is_refused_by_field(
    server: RehearsalServer, sent: bytes, told: str
) -> None:
    url = await server.base_url()
    async with httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.post(
            f"{url}/chat/completions",
            headers={"authorization": f"Bearer {server.key}"},
            content=sent,
        )
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]


async def test_half_a_pair_of_surrogates_breaks_nothing(server: RehearsalServer) -> None:
    url = await server.base_url()
    sent = (
        b'{"model": "x", "messages": [{"role": "user", "content": "a\\ud83d b"}], "stream": true}'
    )
    async with httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.post(
            f"{url}/chat/completions",
            headers={"authorization": f"Bearer {server.key}"},
            content=sent,
        )
    assert answer.status_code == 200
    assert answer.text.endswith("data: [DONE]\n\n")


async def test_a_script_makes_it_fail_as_providers_do(
    server: RehearsalServer, tmp_path: Path
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "rules:\n"
        "- {when: {contains: cut}, answer: one two three four five six, cut: true}\n"
        "- error: {status: 429, message: slow down, retry_after_seconds: 7}\n"
    )
    async with _client(await server.base_url(path), server.key) as client:
        with pytest.raises(openai.RateLimitError, match="slow down") as limited:
            await client.chat.completions.create(**body("hi"))
        assert limited.value.response.headers["retry-after"] == "7"
        with pytest.raises(openai.APIConnectionError):
            await client.chat.completions.create(**body("cut"))
        stream = await client.chat.completions.create(**body("cut"), stream=True)
        said: list[str] = []
        with pytest.raises((openai.APIError, httpx2.HTTPError)):
            await _listen(stream, said)
    assert "".join(said).startswith("one two")
    assert "six" not in "".join(said)


async def _listen(stream: openai.AsyncStream[ChatCompletionChunk], said: list[str]) -> None:
    async for each in stream:
        said.append(each.choices[0].delta.content or "")  # noqa: PERF401 - kept as far as it came


async def test_a_script_of_one_model_is_not_that_of_others(
    tmp_path: Path,
) -> None:
    (tmp_path / "all.yaml").write_text("rules: [{answer: of all}]")
    (tmp_path / "one.yaml").write_text("rules: [{answer: of one}]")
    server = RehearsalServer(script=ScriptFile(tmp_path / "all.yaml"))
    try:
        for script, said in ((None, "of all"), (tmp_path / "one.yaml", "of one")):
            async with _client(await server.base_url(script), server.key) as client:
                answer = await client.chat.completions.create(**body("hi"))
                assert answer.choices[0].message.content == said
    finally:
        await server.close()


async def test_a_script_that_will_not_do_is_told(server: RehearsalServer, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("rules: [{answer: hi}]")
    async with _client(await server.base_url(path), server.key) as client:
        path.write_text("rules:\n- {answers: hi there}")
        with pytest.raises(openai.BadRequestError, match=r"s\.yaml:2: rules\[0\]\.answers"):
            await client.chat.completions.create(**body("hi"))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        await server.base_url(tmp_path / "none.yaml")


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_vectors_come_in_both_encodings(
    server: RehearsalServer, encoding: Literal["float", "base64"]
) -> None:
    async with _client(await server.base_url(), server.key) as client:
        answer = await client.embeddings.create(
            model="e", input=["a cat", "a dog", "a cat"], encoding_format=encoding, dimensions=64
        )
        if encoding == "float":
            assert [len(each.embedding) for each in answer.data] == [64, 64, 64]
        assert answer.data[0].embedding == answer.data[2].embedding
        assert answer.data[0].embedding != answer.data[1].embedding
        with pytest.raises(openai.BadRequestError, match="input must be"):
            await client.embeddings.create(model="e", input=[])


async def test_documents_are_ranked(server: RehearsalServer) -> None:
    url = await server.base_url()
    documents = ["apples", "the run token", "a token"]
    async with httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.post(
            f"{url}/rerank",
            headers={"authorization": f"Bearer {server.key}"},
            json={"model": "r", "query": "run token", "documents": documents, "top_n": 2},
        )
    assert [each["index"] for each in answer.json()["results"]] == [1, 2]
