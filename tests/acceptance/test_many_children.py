"""A hundred processes started while streams are live: no stream stops, and no child inherits."""

import asyncio
import shlex
import time
from pathlib import Path

import pytest

from tests.integration.host.calls import Answer, calling, message
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import write_shell_plugin
from tests.integration.host.processes import descendants, open_files
from tests.integration.host.waiting import eventually

_CHILDREN = 100
_STREAMS = 50
_CONFIG = """\
agents:
- {id: live, runner_id: "plugin:runmesh/echo/default",
   config: {repeat: 1000000, size: 10, interval_seconds: 0.1}}
"""


@pytest.mark.timeout(120)
async def test_children_start_beside_live_streams_and_inherit_nothing(tmp_path: Path) -> None:
    plugins, reports = tmp_path / "plugins", tmp_path / "reports"
    plugins.mkdir()
    reports.mkdir()
    with HostProcess(tmp_path / "data", plugins=plugins, config=_CONFIG) as host:
        async with calling(host.addresses["grpc"], host.key) as caller:
            calls = [caller.open(message(), "live") for _ in range(_STREAMS)]
            gaps = [0.0] * _STREAMS

            async def follow(number: int) -> Answer:
                answer = Answer()
                last = time.monotonic()
                while not answer.items or answer.items[-1] != "ended":
                    answer.take(await calls[number].read())
                    now = time.monotonic()
                    gaps[number] = max(gaps[number], now - last)
                    last = now
                return answer

            following = [asyncio.create_task(follow(number)) for number in range(_STREAMS)]
            ours = set(_held_open(host.pid))
            for number in range(_CHILDREN):
                write_shell_plugin(plugins, f"acme/child-{number}", _report(reports / str(number)))
            await eventually(lambda: len(list(reports.glob("*.done"))) == _CHILDREN, seconds=90)
            assert len(descendants(host.pid)) >= 2 * _CHILDREN
            # None stopped for long, though the machine had much to do.
            assert max(gaps) < 10
            assert not any(task.done() for task in following)
            runs = (await caller.list(agent_id="live", page_size=100)).runs
            assert len(runs) == _STREAMS
            await asyncio.gather(*(caller.cancel(run.run_id) for run in runs))
            for answer in await asyncio.gather(*following):
                answer.check_numbers()
                assert answer.failure == "cancelled"
        for number in range(_CHILDREN):
            descriptors = (reports / f"{number}.done").read_text().splitlines()
            # Its three standard streams; what lists them has one more, on what it lists.
            assert len(descriptors) <= 4, descriptors
            for link in descriptors:
                assert link not in ours
                assert not link.startswith(("socket:", "anon_inode:")), descriptors
                assert "runmesh.db" not in link


def _report(path: Path) -> str:
    """A script that writes down what its process has open, and stays."""
    target = shlex.quote(str(path))
    listing = "for each in /proc/self/fd/*; do readlink $each; done"
    return f"sh -c {shlex.quote(listing)} > {target}; mv {target} {target}.done; exec sleep 1000"


def _held_open(pid: int) -> list[str]:
    """What a process has open that no other may: sockets, and files of its data."""
    return [link for link in open_files(pid) if link.startswith("socket:") or "runmesh.db" in link]
