"""The real host in a test's process: what a runner's test gets of it, and that nothing is left."""

import asyncio
import gc
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from runmesh.admin.v1 import admin_pb2

from host_service.testing import RealHost, RunnerNotServed
from plugins.echo.echo.main import Echo
from runner_sdk import Manifest, Result, RunContext, RunFailure, agent_runner
from stores.records import RunStatus
from tests.integration.host.refusals import refused
from tests.integration.host.waiting import eventually
from tests.postgresql import PostgresqlServer, running_postgresql

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "runners.md"
ACME = Manifest.minimal("acme/tested")


@agent_runner
async def greets(ctx: RunContext) -> AsyncIterator[Result]:
    yield ctx.delta(f"Hello, {ctx.text}")
    yield ctx.delta("!")


@agent_runner
async def waits(ctx: RunContext) -> AsyncIterator[Result]:
    yield ctx.delta("begun")
    await asyncio.Event().wait()


@agent_runner(name="gloomy")
async def fails(ctx: RunContext) -> None:
    raise RunFailure("acme.gloom", f"no answer to {ctx.text}")


async def test_runner_is_found_by_its_manifest_and_answers_through_a_binding() -> None:
    async with RealHost(Echo()) as host:
        outcome = await host.dispatch("你好 👋")

    assert outcome.status == "COMPLETED"
    assert outcome.text == outcome.streamed_text == "你好 👋"
    assert outcome.run.binding_id == "default-messages"
    assert outcome.run.runner_id == "plugin:runmesh/echo/default"


async def test_agent_has_a_configuration_that_is_checked() -> None:
    async with RealHost(Echo(), config={"repeat": 3}) as host:
        outcome = await host.dispatch(None, type="api.invoked", data_json="{}")
        bad = admin_pb2.Agent(
            id="bad", runner_id=outcome.run.runner_id, config_json='{"repeat": "often"}'
        )
        refusal = await refused(host.apply(bad))

    assert outcome.status == "COMPLETED"
    assert outcome.run.binding_id == "default"
    assert refusal.reason == "INVALID_ARGUMENT"


async def test_each_runner_has_an_agent_of_its_own() -> None:
    manifest = Manifest.minimal("acme/tested", "default", "gloomy")
    async with RealHost(greets, fails, manifest=manifest) as host:
        first = await host.dispatch("Ada")
        second = await host.dispatch("Ada", agent_id="gloomy")

    assert first.text == "Hello, Ada!"
    assert (second.status, second.failure) == ("FAILED", "acme.gloom")
    assert second.of_kind("run_failed")[0].message == "no answer to Ada"


async def test_run_can_be_followed_and_cancelled() -> None:
    async with RealHost(waits, manifest=ACME) as host:
        run = await host.submit("hello")
        shown = ""
        async for result in host.results(run.run_id):
            shown += result.message_delta.text
            if shown == "begun":
                await host.cancel(run.run_id, "enough")
        outcome = await host.watch(run.run_id)

    assert (outcome.status, outcome.failure) == ("CANCELLED", "cancelled")
    assert outcome.text == "begun"


async def test_stores_have_what_the_host_kept() -> None:
    async with RealHost(greets, manifest=ACME) as host:
        outcome = await host.dispatch("Ada")
        kept = await host.stores.ledger.get(outcome.run.run_id)

    assert kept is not None
    assert kept.status is RunStatus.COMPLETED


async def test_limits_and_the_agents_fields_are_the_tests_own() -> None:
    agent = admin_pb2.Agent()
    agent.timeout.FromMilliseconds(200)
    async with RealHost(waits, manifest=ACME, agent=agent, limits={"event_bytes": 2000}) as host:
        outcome = await host.dispatch("hello")
        refusal = await refused(host.dispatch("x" * 3000))

    assert (outcome.status, outcome.failure) == ("TIMED_OUT", "runner.timeout")
    assert refusal.reason == "PAYLOAD_TOO_LARGE"


async def test_runner_that_the_host_refuses_is_told_with_its_fault() -> None:
    manifest = Manifest.minimal("acme/tested")
    manifest.runners["default"].version = ""
    host = RealHost(greets, manifest=manifest)

    with pytest.raises(RunnerNotServed, match="plugin:acme/tested/default: version must have"):
        await host.__aenter__()


async def test_run_that_is_left_behind_is_cancelled_at_once() -> None:
    loop = asyncio.get_running_loop()
    async with RealHost(waits, manifest=ACME) as host:
        await host.submit("hello")
        left_at = loop.time()

    # The host's grace would be 30 s.
    assert loop.time() - left_at < 20


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    with running_postgresql() as server:
        yield server


async def test_two_hosts_at_once_share_a_database(server: PostgresqlServer) -> None:
    url = server.new_database("two_hosts_in_a_process")
    async with (
        RealHost(greets, manifest=ACME, database_url=url) as one,
        RealHost(greets, manifest=ACME, database_url=url) as other,
    ):
        first = await one.dispatch("Ada", event_id="e1")
        again = await other.dispatch("Ada", event_id="e1")
        second = await other.dispatch("Bo")

    assert (first.text, second.text) == ("Hello, Ada!", "Hello, Bo!")
    assert again.run.duplicate
    assert again.run.run_id == first.run.run_id
    assert again.messages == first.messages


async def test_host_that_has_its_data_folder_again_is_the_same(tmp_path: Path) -> None:
    async with RealHost(greets, manifest=ACME, data_folder=tmp_path / "data") as host:
        first = await host.dispatch("Ada", event_id="e1")
    async with RealHost(greets, manifest=ACME, data_folder=tmp_path / "data") as host:
        again = await host.dispatch("Ada", event_id="e1")

    assert again.run.duplicate
    assert again.run.run_id == first.run.run_id


async def test_nothing_is_left_of_hosts_that_are_gone() -> None:
    async def use() -> None:
        async with RealHost(waits, manifest=ACME) as host:
            run = await host.submit("hello")
            async for result in host.results(run.run_id):
                if result.HasField("message_delta"):
                    break

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def folders() -> set[Path]:
        return set(Path(tempfile.gettempdir()).glob("runmesh-test-*"))

    await use()
    tasks, threads, files, before = (
        asyncio.all_tasks(),
        threading.enumerate(),
        descriptors(),
        folders(),
    )
    for _ in range(3):
        await use()
    gc.collect()
    await eventually(lambda: asyncio.all_tasks() <= tasks)
    await eventually(lambda: len(threading.enumerate()) <= len(threads))
    await eventually(lambda: descriptors() <= files)
    assert not gc.get_freeze_count()
    assert folders() <= before


def test_it_needs_no_pytest() -> None:
    code = (
        "import asyncio, sys\n"
        "from host_service.testing import RealHost\n"
        "from plugins.echo.echo.main import Echo\n"
        "async def main():\n"
        "    async with RealHost(Echo()) as host:\n"
        "        print((await host.dispatch('plain')).text)\n"
        "    assert 'pytest' not in sys.modules\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "plain\n", "")


def test_examples_of_the_guide_pass(tmp_path: Path) -> None:
    guide = GUIDE.read_text()
    named = dict(
        re.findall(
            r"^`(\S+\.(?:yaml|py))`[^\n]*:\n\n```\w+\n(.*?)```", guide, re.DOTALL | re.MULTILINE
        )
    )
    examples = [
        block
        for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
        if "async def test_" in block
    ]
    assert {"manifest.yaml", "components/default.yaml", "main.py"} <= named.keys()
    for name, text in named.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for index, example in enumerate(examples):
        (tmp_path / f"test_example_{index}.py").write_text(example)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-o",
            "asyncio_mode=auto",
            "-p",
            "no:cacheprovider",
            ".",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(examples)} passed" in done.stdout
    assert any("RealHost" in example for example in examples)
