"""Tool servers that are programs: started, spoken to, survived, and ended with all they started."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from host_service.catalogue.tool_server import ToolServer
from host_service.limits import Limits
from host_service.tools.errors import (
    CallFailed,
    CallTimedOut,
    ParametersRefused,
    ServerFailed,
    ToolUnknown,
)
from host_service.tools.keeper import State
from tests.integration.tools.kept import Kept, eventually, keeping, lines, raw, stateful


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    async with keeping(tmp_path / "tool-servers") as kept:
        yield kept


@pytest.fixture
def note(tmp_path: Path) -> Path:
    return tmp_path / "note"


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in {"Z", "X"}


async def gone(process: int) -> None:
    await eventually(lambda: not is_alive(process))


async def test_tools_are_found_and_one_session_keeps_its_state(kept: Kept, note: Path) -> None:
    await kept.have(stateful(note))
    status = await kept.ready()
    assert status.server_name == "stateful 1.2.3"
    assert "s__count" in {each.name for each in status.tools}
    assert (await kept.call("count")).structured_content == {"result": 1}
    assert (await kept.call("count", by=4)).structured_content == {"result": 5}


async def test_numbers_and_nulls_arrive_as_they_are(kept: Kept, note: Path) -> None:
    await kept.have(stateful(note))
    await kept.ready()
    value = {"line": 4475, "big": 9007199254740993**2, "f": 1.0, "n": None, "t": "你😀"}
    answer = await kept.call("echo", value=value)
    assert answer.structured_content == {"result": repr(value)}


async def test_failing_tool_is_told_from_unknown_tool_and_from_bad_parameters(
    kept: Kept,
) -> None:
    answers = {
        "raises": {"content": [{"type": "text", "text": "it broke"}], "isError": True},
        "gone": -32602,
        "broken": -32603,
    }
    tools = [["raises", "gone", "broken"]]
    await kept.have(raw({"answers": answers, "tools": tools}))
    await kept.ready()
    assert (await kept.call("raises")).is_error
    with pytest.raises(ParametersRefused, match="it said no"):
        await kept.call("gone")
    with pytest.raises(CallFailed, match="-32603: it said no"):
        await kept.call("broken")


async def test_tool_that_a_server_took_back_is_unknown(kept: Kept) -> None:
    await kept.have(raw({"tools": [["one", "two"]]}))
    await kept.ready()
    two = kept.servers.toolset.get("s__two")
    assert two is not None
    await kept.have(raw({"tools": [["one"]]}))
    await kept.until("s", lambda status: [each.name for each in status.tools] == ["s__one"])
    with pytest.raises(ToolUnknown):
        await kept.servers.call(two, {})


async def test_all_pages_are_listed_and_changes_noticed(kept: Kept, note: Path) -> None:
    await kept.have(raw({"tools": [["one"], ["two"], ["three"]]}, "pages"), stateful(note))
    status = await kept.ready("pages")
    assert [each.name for each in status.tools] == ["pages__one", "pages__three", "pages__two"]
    await kept.ready()
    await kept.call("grow")
    await kept.until("s", lambda status: "s__grown" in {each.name for each in status.tools})


async def test_names_that_do_not_fit_are_left_out_with_a_reason(kept: Kept) -> None:
    names = ["fine", "with.dot", "fine", "x" * 70, "空"]
    await kept.have(raw({"tools": [names]}))
    status = await kept.ready()
    assert [each.name for each in status.tools] == ["s__fine"]
    reasons = {each.name: each.reason for each in status.left_out}
    assert "same name" in reasons["fine"]
    assert "models take letters" in reasons["with.dot"]
    assert "73 characters" in reasons["x" * 70]
    assert "空" in reasons


async def test_counts_and_sizes_are_capped(tmp_path: Path) -> None:
    limits = Limits(tools_of_server=2, tool_schema_bytes=100, tool_description_bytes=10)
    large = {"name": "a", "inputSchema": {"type": "object", "title": "x" * 200}}
    wordy = {"name": "b", "description": "你" * 50, "inputSchema": {"type": "object"}}
    async with keeping(tmp_path / "tool-servers", limits=limits) as kept:
        await kept.have(raw({"tools": [[large, wordy, "c", "d"]]}))
        status = await kept.ready()
        assert [each.name for each in status.tools] == ["s__b", "s__c"]
        assert status.tools[0].description == "你你你"
        reasons = {each.name: each.reason for each in status.left_out}
        assert "100" in reasons["a"]
        assert reasons["d"] == "a server may offer 2 tools"


async def test_broken_schema_is_told_and_its_tool_stays(kept: Kept) -> None:
    remote = {"name": "remote", "inputSchema": {"$ref": "http://127.0.0.1:1/schema.json"}}
    wrong = {"name": "wrong", "inputSchema": {"type": "object", "required": 7}}
    await kept.have(raw({"tools": [[remote, wrong]]}))
    status = await kept.ready()
    troubles = {each.name: each.trouble for each in status.tools}
    assert "127.0.0.1:1" in troubles["s__remote"]
    assert "required" in troubles["s__wrong"] or "array" in troubles["s__wrong"]
    assert {each.told_schema_json for each in status.tools} == {'{"type":"object"}'}


async def test_noise_before_and_between_messages_is_passed_over(kept: Kept) -> None:
    answers = {"one": {"content": [{"type": "text", "text": "heard"}]}}
    await kept.have(raw({"noise": True, "answers": answers}))
    await kept.ready()
    assert (await kept.call("one")).content[0].text == "heard"


async def test_flood_on_stderr_blocks_nothing(kept: Kept) -> None:
    await kept.have(raw({"stderr_bytes": 4_000_000}))
    await kept.ready()
    await kept.call("one")


async def test_half_surrogates_and_no_numbers_are_mended(kept: Kept) -> None:
    text = (
        '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"a\\ud83db \\ud83d'
        '\\ude00"}],"structuredContent":{"n":NaN,"i":[Infinity,1]}}}'
    )
    await kept.have(raw({"answers": {"one": {"raw": text}}}))
    await kept.ready()
    answer = await kept.call("one")
    assert answer.content[0].text == "a\ufffdb 😀"
    assert answer.structured_content == {"n": None, "i": [None, 1]}


async def test_large_result_comes_whole_and_the_session_goes_on(kept: Kept, note: Path) -> None:
    await kept.have(stateful(note))
    await kept.ready()
    answer = await kept.call("large", size=30_000_000)
    assert len(answer.content[0].text) == 30_000_000
    await kept.call("count")
    assert len([line for line in lines(note) if line.startswith("started")]) == 1


async def test_message_beyond_the_limit_ends_the_session_and_says_so(
    tmp_path: Path, note: Path
) -> None:
    limits = Limits(tool_message_bytes=1_000_000)
    async with keeping(tmp_path / "tool-servers", limits=limits) as kept:
        await kept.have(stateful(note))
        await kept.ready()
        with pytest.raises(ServerFailed, match="more than 1000000 bytes"):
            await kept.call("large", size=5_000_000)
        assert (await kept.call("count")).structured_content == {"result": 1}


async def test_cancelled_call_reaches_the_server_and_the_session_stays(
    kept: Kept, note: Path
) -> None:
    await kept.have(stateful(note))
    await kept.ready()
    call = asyncio.create_task(kept.call("wait", seconds=100))
    await eventually(lambda: "waiting" in lines(note))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await eventually(lambda: "cancelled" in lines(note))
    assert (await kept.call("count")).structured_content == {"result": 1}


async def test_call_that_takes_too_long_is_given_up_and_the_server_told(
    tmp_path: Path, note: Path
) -> None:
    async with keeping(tmp_path / "tool-servers", limits=Limits(tool_call_seconds=3.0)) as kept:
        await kept.have(stateful(note))
        await kept.ready()
        with pytest.raises(CallTimedOut, match="3 s"):
            await kept.call("wait", seconds=100)
        await eventually(lambda: "cancelled" in lines(note))


async def test_calls_beyond_what_a_server_takes_at_once_wait_their_turn(
    tmp_path: Path, note: Path
) -> None:
    async with keeping(tmp_path / "tool-servers", limits=Limits(tool_calls_of_server=2)) as kept:
        other = tmp_path / "other"
        await kept.have(stateful(note), stateful(other, "other"))
        await kept.ready()
        await kept.ready("other")
        calls = [asyncio.create_task(kept.call("wait", seconds=1000)) for _ in range(4)]
        await eventually(lambda: lines(note).count("waiting") == 2)
        # Another server has turns of its own, and by its answer the others had time to be wrong.
        assert (await kept.call("other__count")).structured_content == {"result": 1}
        assert lines(note).count("waiting") == 2
        calls[0].cancel()
        await eventually(lambda: lines(note).count("waiting") == 3)
        # One that waits may be given up as well, and takes no turn.
        calls[3].cancel()
        calls[1].cancel()
        calls[2].cancel()
        await eventually(lambda: lines(note).count("cancelled") == 3)
        assert (await kept.call("count")).structured_content == {"result": 1}
        assert lines(note).count("waiting") == 3


async def test_server_that_ends_is_started_again_and_the_next_call_works(
    kept: Kept, note: Path
) -> None:
    await kept.have(stateful(note))
    await kept.ready()
    with pytest.raises(ServerFailed, match="code 3"):
        await kept.call("leave")
    assert (await kept.call("count")).structured_content == {"result": 1}
    assert len([line for line in lines(note) if line.startswith("started")]) == 2


async def test_crashing_server_is_held_with_its_last_words_and_costs_no_other(
    kept: Kept, note: Path
) -> None:
    crashing = raw({"exit": 3, "says": "no database"}, "crashing")
    await kept.have(crashing, stateful(note))
    await kept.ready()
    held = await kept.until("crashing", lambda status: status.state is State.HELD)
    assert "code 3" in held.trouble
    assert "no database" in held.last_words
    assert held.next_try_at is not None
    await kept.call("count")


async def test_server_that_hangs_is_given_up_and_costs_no_other(tmp_path: Path, note: Path) -> None:
    limits = Limits(tool_server_start_seconds=20.0)
    async with keeping(tmp_path / "tool-servers", limits=limits) as kept:
        await kept.have(stateful(note))
        await kept.ready()
        await kept.have(stateful(note), raw({"hang": "initialize"}, "hanging"))
        await kept.call("count")
        status = await kept.failed("hanging")
        assert status.trouble == "it did not tell its tools in 20 s"


async def test_three_ways_not_to_start_are_told_apart(kept: Kept, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    plain.chmod(stat.S_IRUSR)
    missing = ToolServer(id="missing", command="no-such-command-anywhere")
    unusable = ToolServer(id="unusable", command=str(plain))
    await kept.have(missing, unusable)
    assert "no-such-command-anywhere is not there" in (await kept.failed("missing")).trouble
    assert "is not executable" in (await kept.failed("unusable")).trouble
    (tmp_path / "file").write_text("")
    async with keeping(tmp_path / "file") as others:
        await others.have(ToolServer(id="s", command="true"))
        assert "working folder" in (await others.failed()).trouble


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18"])
async def test_older_version_is_taken(kept: Kept, version: str) -> None:
    await kept.have(raw({"version": version}))
    assert (await kept.ready()).protocol_version == version


@pytest.mark.parametrize("version", ["1999-01-01", "garbage", "2099-12-31"])
async def test_version_in_no_common_is_told_with_those_that_are_spoken(
    kept: Kept, version: str
) -> None:
    await kept.have(raw({"version": version}))
    trouble = (await kept.failed()).trouble
    assert f"it speaks protocol version {version}; this host speaks 2024-11-05" in trouble


async def test_change_of_one_server_leaves_the_others_alone(kept: Kept, note: Path) -> None:
    await kept.have(stateful(note), raw({}, "other"))
    await kept.ready()
    await kept.ready("other")
    await kept.call("count")
    await kept.have(stateful(note), raw({"tools": [["new"]]}, "other"))
    await kept.until("other", lambda status: [e.name for e in status.tools] == ["other__new"])
    await kept.have(stateful(note), raw({"tools": [["new"]]}, "other", enabled=False))
    assert "other" not in kept.servers.statuses()
    assert kept.servers.toolset.get("other__new") is None
    assert (await kept.call("count")).structured_content == {"result": 2}


async def test_changed_secret_starts_its_server_anew_and_is_shown_nowhere(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    secret = "a-secret-value-0123456789"
    server = raw({"says": "the token is", "exit": 1}, env=("TOKEN",))
    await kept.have(server)
    assert (await kept.failed()).trouble == "the value of env.TOKEN is not stored: set it"
    kept.secrets.values["s", "env.TOKEN"] = secret
    await kept.have(server)
    status = await kept.until("s", lambda status: "the token is" in status.last_words)
    assert secret not in status.last_words
    assert secret not in repr(status)
    assert "the token is" in caplog.text
    assert secret not in caplog.text


async def test_environment_has_little_of_the_hosts(
    kept: Kept, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_HOST_SECRET", "x")
    kept.secrets.values["s", "env.TOKEN"] = "given-to-it"
    await kept.have(stateful(note, env=("TOKEN",)))
    await kept.ready()
    given = (await kept.call("environment")).structured_content
    assert "SOME_HOST_SECRET" not in given
    assert given["TOKEN"] == "given-to-it"
    assert os.stat(given["HOME"]).st_mode & 0o777 == 0o700  # noqa: PTH116


async def test_what_a_server_started_ends_with_it(kept: Kept, note: Path) -> None:
    await kept.have(stateful(note))
    await kept.ready()
    started = (await kept.call("spawn")).structured_content["result"]
    assert is_alive(started)
    server = int(lines(note)[0].split()[1])
    await kept.have()
    await gone(server)
    await gone(started)


async def test_server_that_ignores_every_sign_is_killed(kept: Kept) -> None:
    await kept.have(raw({"leaves": True}))
    await kept.ready()
    ours = [each for each in _processes() if b'"leaves"' in _command(each)]
    assert ours
    await kept.have()
    for each in ours:
        await gone(each)


def _processes() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
