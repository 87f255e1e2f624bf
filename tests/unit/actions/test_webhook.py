"""Tests of `host_service.actions.webhook` against a real server: what is sent, and every fault."""

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from host_service.actions.executors import ExecutionFailed
from host_service.actions.webhook import Webhook
from tests.unit.actions.samples import NOON, an_action
from tests.unit.actions.server import HookServer, hook_server

UNKNOWN = "whether it was done is not known, and it is not tried again"
MOST = 1000


@pytest.fixture
async def server() -> AsyncIterator[HookServer]:
    async with hook_server() as served:
        yield served


def a_hook(url: str, **changes: Any) -> Webhook:
    fields: dict[str, Any] = {
        "url": url,
        "secret": "a secret",
        "timeout_seconds": 5.0,
        "most_bytes": MOST,
        "clock": lambda: NOON,
    }
    return Webhook(**(fields | changes))


async def failure(hook: Webhook) -> str:
    with pytest.raises(ExecutionFailed) as told:
        await hook.execute(an_action())
    return str(told.value)


async def test_request_says_all_of_the_action_and_keeps_its_json(server: HookServer) -> None:
    await a_hook(server.url).execute(an_action(decided_by="key-7"))
    (request,) = server.received
    assert request.line == "POST /hooks/desk?room=1 HTTP/1.1"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["host"] == server.url.split("/")[2]
    assert json.loads(request.body) == {
        "action_id": "action-1",
        "action": "ticket.create",
        "idempotency_key": 'key "é🦉"',
        "target": {"room": 9223372036854775809},
        "payload": {"text": "hé 🦉", "amount": 1.10},
        "run_id": "run-1",
        "agent_id": "helper",
        "runner_id": "plugin:acme/desk/default",
        "workspace_id": "acme",
        "requested_at": "2026-03-01T12:00:00+00:00",
        "approved_by": "key-7",
    }
    assert b'"target":{"room": 9223372036854775809}' in request.body
    assert b'"amount": 1.10}' in request.body
    await a_hook(server.url).execute(an_action(target=None, payload=None))
    bare = json.loads(server.received[1].body)
    assert (bare["target"], bare["payload"], bare["approved_by"]) == (None, None, None)


@pytest.mark.parametrize(
    ("secret", "key"),
    [
        ("a secret", b"a secret"),
        ("whsec_" + base64.b64encode(b"\0\xff key").decode(), b"\0\xff key"),
    ],
)
async def test_signature_holds_for_id_time_and_body(
    server: HookServer, secret: str, key: bytes
) -> None:
    await a_hook(server.url, secret=secret).execute(an_action())
    (request,) = server.received
    headers = request.headers
    assert headers["webhook-id"] == "action-1"
    assert headers["webhook-timestamp"] == str(int(NOON.timestamp()))
    signed = f"action-1.{headers['webhook-timestamp']}.".encode() + request.body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


def test_secret_that_is_marked_as_base64_must_be() -> None:
    with pytest.raises(ValueError, match="must be base64"):
        a_hook("http://127.0.0.1/", secret="whsec_é")


@pytest.mark.parametrize("status", [200, 201, 204, 299])
async def test_answer_of_success_is_one(server: HookServer, status: int) -> None:
    server.replies(status)
    answer = await a_hook(server.url).execute(an_action())
    assert (answer.result_json, answer.detail) == (None, "")


@pytest.mark.parametrize(
    ("body", "result", "detail"),
    [
        ('{"id": 18446744073709551616, "n": 1.10}', '{"id": 18446744073709551616, "n": 1.10}', ""),
        ("ok", None, "no JSON"),
        ('{"a": 1, "a": 2}', None, "no JSON"),
        ('"\\u0000"', None, "no JSON"),
        (b"\xff", None, "no UTF-8"),
        ('"' + "x" * (MOST - 2) + '"', '"' + "x" * (MOST - 2) + '"', ""),
        ('"' + "x" * (MOST - 1) + '"', None, "more than 1000 bytes"),
    ],
)
async def test_body_of_an_answer_is_kept_if_it_is_json_and_small(
    server: HookServer, body: str | bytes, result: str | None, detail: str
) -> None:
    server.replies(200, body)
    answer = await a_hook(server.url).execute(an_action())
    assert answer.result_json == result
    assert detail in answer.detail


@pytest.mark.parametrize(
    "raw",
    [
        "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\n[1, \r\n2\r\n2]\r\n0\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n[1, 2]",
        "HTTP/1.0 200 OK\r\n\r\n[1, 2]",
        "HTTP/1.1 200\r\nContent-Length: 6\r\n\r\n[1, 2] and what is for nobody",
    ],
)
async def test_every_form_of_an_answer_is_read(server: HookServer, raw: str) -> None:
    server.answers(raw)
    answer = await a_hook(server.url).execute(an_action())
    assert answer.result_json == "[1, 2]"


@pytest.mark.parametrize("chunked", [False, True])
async def test_answer_may_be_larger_than_what_is_buffered(
    server: HookServer, chunked: bool
) -> None:
    most = 1024 * 1024
    body = '"' + "x" * (most - 2) + '"'
    if chunked:
        text = f"{most:x}\r\n{body}\r\n0\r\n\r\n"
        server.answers(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{text}")
    else:
        server.replies(200, body)
    answer = await a_hook(server.url, most_bytes=most).execute(an_action(payload=body))
    assert answer.result_json == body
    assert json.loads(server.received[0].body)["payload"] == json.loads(body)


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
async def test_answer_of_failure_is_one(server: HookServer, status: int) -> None:
    server.replies(status, "the secret reason")
    assert await failure(a_hook(server.url)) == f"the webhook answered with status {status}"
    assert len(server.received) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirect_is_not_followed(server: HookServer, status: int) -> None:
    async with hook_server() as inside:
        server.replies(status, "", f"Location: {inside.url}")
        assert "redirects are not followed" in await failure(a_hook(server.url))
        assert inside.received == []


async def test_proxy_of_the_environment_is_not_used(
    server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    await a_hook(server.url).execute(an_action())
    assert len(server.received) == 1


async def test_refused_connection_is_known_not_to_have_done_anything() -> None:
    async with hook_server() as gone:
        url = gone.url
    told = await failure(a_hook(url))
    assert told.endswith("connection refused: it was not done")
    assert "127.0.0.1" not in told
    told = await failure(a_hook("http://nowhere.invalid/hook"))
    assert "cannot be reached" in told
    assert "nowhere" not in told


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n[1",
        "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 OK 200\r\n\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n" * 20,
        "HTTP/1.1 200 OK\r\nX: " + "x" * 100_000 + "\r\n\r\n",
        "HTTP/1.1 200 OK\r\n" + "A: b\r\n" * 500 + "\r\n",
    ],
)
async def test_answer_that_breaks_off_or_is_none_is_a_failure(server: HookServer, raw: str) -> None:
    server.answers(raw)
    assert UNKNOWN in await failure(a_hook(server.url))
    assert len(server.received) == 1


async def _never(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    # Until the other side leaves.
    await reader.read()


async def _drop_by_drop(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + b" " * 900:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.05)


async def _slow_body(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("answer", [_never, _drop_by_drop, _slow_body])
async def test_all_of_it_has_one_time(server: HookServer, answer: Any) -> None:
    server.answer = answer
    began = time.monotonic()
    told = await failure(a_hook(server.url, timeout_seconds=0.3))
    assert told == f"the webhook did not answer within 0.3 s: {UNKNOWN}"
    assert 0.25 < time.monotonic() - began < 3


@pytest.mark.parametrize(
    "head", ["", "Transfer-Encoding: chunked\r\n", "Content-Length: 10000000000\r\n"]
)
async def test_endless_body_is_left_where_it_is(server: HookServer, head: str) -> None:
    block = b"10000\r\n" + b"x" * 65536 + b"\r\n" if "chunked" in head else b"x" * 65536
    written = 0

    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n".encode())
        while True:
            writer.write(block)
            written += len(block)
            await writer.drain()

    server.answer = endless
    answer = await a_hook(server.url).execute(an_action())
    assert "more than 1000 bytes" in answer.detail
    async with asyncio.timeout(5):
        await server.left.wait()
    assert written < 64 * 1024 * 1024


async def test_caller_that_is_cancelled_closes_the_connection(server: HookServer) -> None:
    closed = asyncio.Event()

    async def until_closed(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        finally:
            closed.set()

    server.answer = until_closed
    task = asyncio.create_task(a_hook(server.url).execute(an_action()))
    async with asyncio.timeout(5):
        await server.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await closed.wait()


async def test_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "certificate.pem"
    file.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    async with hook_server(ssl=context) as server:
        told = await failure(a_hook(server.url.replace("http://127.0.0.1", "https://localhost")))
        assert "its certificate does not hold" in told
        assert told.endswith("it was not done")
        assert server.received == []
