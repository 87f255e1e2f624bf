"""Tool servers at addresses: restarted, forgetful, away."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from host_service.catalogue.tool_server import ToolServer
from host_service.limits import Limits
from host_service.tools.errors import CallFailed, ServerFailed, SessionLost
from tests.integration.tools.kept import SERVERS, Kept, eventually, keeping, lines
from tests.integration.tools.servers.forgetful import Forgetful


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    async with keeping(tmp_path / "tool-servers") as kept:
        yield kept


@pytest.fixture
def forgetful() -> Iterator[Forgetful]:
    server = Forgetful()
    yield server
    server.close()


def at(url: str, **fields: object) -> ToolServer:
    return ToolServer(id="s", url=url, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("refusal", ["404", "200", "400"])
async def test_forgotten_session_is_begun_anew_once_and_the_call_made_once_more(
    kept: Kept, forgetful: Forgetful, refusal: str
) -> None:
    forgetful.refusal = refusal
    await kept.have(at(forgetful.url))
    await kept.ready()
    await kept.call("act")
    forgetful.known.clear()
    assert (await kept.call("act")).content[0].text == "done"
    assert forgetful.sessions == 2
    assert forgetful.calls == ["act", "act"]


async def test_session_that_is_forgotten_at_once_again_is_not_tried_for_ever(
    kept: Kept, forgetful: Forgetful
) -> None:
    await kept.have(at(forgetful.url))
    await kept.ready()

    class Nothing(set[str]):
        def __contains__(self, session: object) -> bool:
            return False

    forgetful.known = Nothing()
    # Its tools cannot even be listed in the second one.
    with pytest.raises((SessionLost, ServerFailed)):
        await kept.call("act")
    assert forgetful.calls == []


async def test_calls_at_once_that_are_forgotten_begin_one_session(
    kept: Kept, forgetful: Forgetful
) -> None:
    await kept.have(at(forgetful.url))
    await kept.ready()
    forgetful.known.clear()
    await asyncio.gather(*(kept.call("act") for _ in range(5)))
    assert forgetful.sessions == 2
    assert len(forgetful.calls) == 5


async def test_cancelled_call_reaches_the_server_and_the_session_stays(
    kept: Kept, forgetful: Forgetful
) -> None:
    await kept.have(at(forgetful.url))
    await kept.ready()
    call = asyncio.create_task(kept.call("hold"))
    await eventually(lambda: forgetful.calls == ["hold"])
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await eventually(lambda: len(forgetful.cancelled) == 1)
    forgetful.hold.set()
    await kept.call("act")
    assert forgetful.sessions == 1


async def test_headers_are_sent_and_shown_nowhere(kept: Kept, forgetful: Forgetful) -> None:
    kept.secrets.values["s", "headers.authorization"] = "Bearer very-secret-token"
    await kept.have(at(forgetful.url, headers=("authorization",)))
    status = await kept.ready()
    assert forgetful.headers_seen["authorization"] == "Bearer very-secret-token"
    forgetful.raw_answer = (
        b'{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"bad very-secret-token"}}'
    )
    with pytest.raises(CallFailed, match=r"bad \*\*\*") as caught:
        await kept.call("act")
    assert "very-secret" not in str(caught.value)
    assert "very-secret" not in repr(status)


async def test_half_surrogates_and_answers_that_are_too_large(tmp_path: Path) -> None:
    forgetful = Forgetful()
    try:
        async with keeping(
            tmp_path / "tool-servers", limits=Limits(tool_message_bytes=100_000)
        ) as kept:
            await kept.have(at(forgetful.url))
            await kept.ready()
            forgetful.raw_answer = (
                b'{"jsonrpc":"2.0","id":ID,"result":{"content":'
                rb'[{"type":"text","text":"a\ud83db \ud83d\ude00"}]}}'
            )
            assert (await kept.call("act")).content[0].text == "a\ufffdb 😀"
            forgetful.raw_answer = b" " * 200_000
            with pytest.raises(CallFailed, match="more than 100000 bytes"):
                await kept.call("act")
            forgetful.raw_answer = b""
            await kept.call("act")
            assert forgetful.sessions == 1
    finally:
        forgetful.close()


async def test_server_that_is_away_is_told_and_found_once_it_is_there(kept: Kept) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    await kept.have(at(f"http://127.0.0.1:{port}/mcp"))
    assert "cannot be reached" in (await kept.failed()).trouble
    forgetful = Forgetful(port)
    try:
        await kept.ready()
        await kept.call("act")
    finally:
        forgetful.close()


async def test_server_of_the_official_library_is_restarted_between_calls(
    kept: Kept, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [sys.executable, str(SERVERS / "stateful.py"), str(note), str(port)]
    first = await asyncio.to_thread(subprocess.Popen, command, stderr=subprocess.DEVNULL)
    try:
        await kept.have(at(f"http://127.0.0.1:{port}/mcp"))
        await kept.ready()
        await kept.call("count", by=7)
        assert (await kept.call("count")).structured_content == {"result": 8}
    finally:
        first.kill()
        await asyncio.to_thread(first.wait)
    second = await asyncio.to_thread(subprocess.Popen, command, stderr=subprocess.DEVNULL)
    try:
        await eventually(lambda: len(lines(note)) == 2)
        await eventually(lambda: _listens(port))
        assert (await kept.call("count")).structured_content == {"result": 1}
    finally:
        second.kill()
        await asyncio.to_thread(second.wait)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True
