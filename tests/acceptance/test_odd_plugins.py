"""Plugins of many tempers on one host: those that can serve do, the others are told of with why."""

import asyncio
import os
import re
import signal
import stat
import sys
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
from runmesh.v1 import discovery_pb2, gateway_pb2

from tests.integration.host.calls import (
    END,
    Caller,
    calling,
    collect,
    collect_until,
    message,
    say,
    scripted,
)
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import (
    SCRIPTED,
    write_plugin,
    write_scripted_plugin,
    write_shell_plugin,
)
from tests.integration.host.processes import descendants, unix_listeners
from tests.integration.host.waiting import eventually

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
FAILED = gateway_pb2.RUN_STATUS_FAILED
UNHEALTHY = discovery_pb2.INSTANCE_STATE_UNHEALTHY
HELD = discovery_pb2.INSTANCE_STATE_FAILED

_BANNER = f"""
printf '\\357\\273\\277\\033[31mWelcome\\033[0m to \\304\\343\\272\\303\\r\\n'
printf 'Warning: no tea\\n' >&2
head -c 1000000 /dev/zero | tr '\\0' 'x'
echo
exec {sys.executable} {SCRIPTED}
"""
# Plugins that end at their start, and what is said of each.
_BROKEN = {
    "exits": ("echo 'no licence found' >&2; exit 3", ["code 3", "no licence found"]),
    "killed": ("echo 'about to be killed' >&2; kill -9 $$", ["SIGKILL", "about to be killed"]),
    "silent": ("exit 0", ["code 0", "it wrote nothing"]),
}
_CONFIG = "agents:\n" + "".join(
    f'- {{id: {name}, runner_id: "plugin:acme/{name}/default"}}\n'
    for name in ("banner", "steady", "locked", *_BROKEN)
)


@pytest.fixture(scope="module")
def odd_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host with plugins of all kinds, in a folder for temporary files with a long path."""
    folder = tmp_path_factory.mktemp("odd")
    plugins = folder / "plugins"
    write_shell_plugin(plugins, "acme/banner", _BANNER)
    write_scripted_plugin(plugins, "acme/steady")
    for name, (script, _) in _BROKEN.items():
        write_shell_plugin(plugins, f"acme/{name}", script)
    locked = write_plugin(plugins, "acme/locked", ["./start"])
    (locked / "start").write_text("#!/bin/sh\n")
    (locked / "start").chmod(0o600)
    temporary = folder / "t"
    temporary /= "x" * (120 - len(str(temporary)) - 1)
    temporary.mkdir(parents=True)
    assert len(str(temporary)) == 120
    environment = {"TMPDIR": str(temporary), "XDG_RUNTIME_DIR": ""}
    with HostProcess(
        folder / "data",
        plugins=plugins,
        # A crash loop would otherwise keep a run waiting for a plugin that cannot come.
        config=f"{_CONFIG}limits: {{instance_wait_seconds: 3}}\n",
        environment=environment,
    ) as host:
        yield host


@pytest.fixture
async def caller(odd_host: HostProcess) -> AsyncIterator[Caller]:
    async with calling(odd_host.addresses["grpc"], odd_host.key) as caller:
        yield caller


async def instance_of(caller: Caller, plugin_id: str) -> discovery_pb2.RunnerInstance:
    listed = await caller.discovery.ListRunners(
        discovery_pb2.ListRunnersRequest(), metadata=caller.metadata
    )
    (found,) = [each for each in listed.instances if each.plugin_id == plugin_id]
    return found


async def test_plugin_that_prints_a_banner_and_a_megabyte_serves(
    caller: Caller, odd_host: HostProcess
) -> None:
    answer = await caller.dispatch(scripted(say("after the banner"), END), "banner")
    assert answer.text == "after the banner"
    log = odd_host.log()
    # What it printed is in the log, by its name, cut, and without anything that a terminal obeys.
    banner = next(line for line in log.splitlines() if "Welcome" in line)
    assert "acme/banner" in banner
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\ufeff]", log)
    assert log.count("x" * 1000) <= 64
    assert "no tea" in log


async def test_long_folder_for_temporary_files_makes_no_socket_path_too_long(
    caller: Caller, odd_host: HostProcess
) -> None:
    assert (await caller.dispatch(message("short paths"), "default")).text == "short paths"
    paths = [
        path
        for process in (odd_host.pid, *(each.pid for each in descendants(odd_host.pid)))
        for path in unix_listeners(process)
    ]
    assert len(paths) >= 3
    assert max(map(len, paths)) < 60


async def test_plugin_that_ends_at_its_start_is_listed_with_how_and_its_last_words(
    caller: Caller,
) -> None:
    for name, (_, words) in _BROKEN.items():
        # Not in the moment between two starts.
        await eventually(partial(_has_failed, caller, f"acme/{name}"))
        instance = await instance_of(caller, f"acme/{name}")
        for word in words:
            assert word in instance.reason
    answers = await asyncio.gather(*(caller.dispatch(message(), name) for name in _BROKEN))
    for name, answer in zip(_BROKEN, answers, strict=True):
        assert answer.ended.status == FAILED
        assert answer.failure == "runner.unavailable"
        assert f"plugin:acme/{name}/default" in answer.ended.failure.message
        # What a plugin prints is for its operator.
        for printed in ("no licence found", "about to be killed"):
            assert printed not in answer.ended.failure.message


async def _has_failed(caller: Caller, plugin_id: str) -> bool:
    return (await instance_of(caller, plugin_id)).state in {UNHEALTHY, HELD}


async def test_plugin_that_cannot_be_run_says_so(caller: Caller) -> None:
    await eventually(lambda: _has_failed(caller, "acme/locked"))
    instance = await instance_of(caller, "acme/locked")
    assert "./start is not executable" in instance.reason


async def test_plugins_that_fail_delay_no_other(odd_host: HostProcess) -> None:
    log = odd_host.log()
    assert "acme/steady is serving" in log
    assert "runmesh/echo is serving" in log


async def test_lost_plugin_fails_its_calls_at_once_and_serves_again_soon(
    caller: Caller, odd_host: HostProcess
) -> None:
    calls = [caller.open(scripted(say("pending"), {"sleep": 3600}), "steady") for _ in range(10)]
    answers = [await collect_until(each, lambda so_far: bool(so_far.shown)) for each in calls]
    victim = (await instance_of(caller, "acme/steady")).process_id
    os.kill(victim, signal.SIGKILL)
    killed_at = time.monotonic()
    await asyncio.gather(*map(collect, calls, answers))
    failed_after = time.monotonic() - killed_at
    for answer in answers:
        assert answer.failure == "runner.crashed"
        assert answer.ended.failure.retryable
        assert "SIGKILL" in answer.ended.failure.message
        assert answer.messages == ["pending"]
    # A call while it is down waits for it, and one beside it does not.
    back = caller.open(scripted(say("back"), END), "steady")
    assert (await caller.dispatch(message("beside"), "default")).text == "beside"
    answer = await collect(back)
    served_after = time.monotonic() - killed_at
    assert answer.text == "back"
    assert failed_after < 2
    # Half a second of pause, a start of Python, and whatever else the machine does.
    assert served_after < 8
    assert (await instance_of(caller, "acme/steady")).restarts == 1


async def test_sockets_of_plugins_are_private(caller: Caller, odd_host: HostProcess) -> None:
    for process in descendants(odd_host.pid):
        for path in unix_listeners(process.pid):
            folder = Path(path).parent
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
