"""Tests of `host_service.registry`: who takes a run, who waits, and who is told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from runmesh.v1 import manifest_pb2

from host_service.registry import (
    FoundBy,
    HostIdentity,
    Instance,
    InstanceState,
    Introduction,
    ManifestFault,
    Registry,
    SlotUnavailable,
    plugin_of,
)

RUNNER = "plugin:acme/desk/default"

Add = Callable[..., Instance]


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    registry = Registry(identity=HostIdentity("host", "Host", "0.1.0"))
    yield registry
    await registry.close()


@pytest.fixture
def serving(registry: Registry) -> Add:
    """Adds an instance that serves, as `bring_up` leaves it; nobody is at its address."""

    def add(*, max_runs: int = 0, runner_id: str = RUNNER, version: str = "1") -> Instance:
        instance = registry.add(
            plugin_id=plugin_of(runner_id), found_by=FoundBy.FOLDER, address="unix:/nowhere"
        )
        manifest = manifest_pb2.RunnerManifest(id=runner_id, version=version)
        instance.introduce(Introduction("id", "1", "", max_runs, {runner_id: manifest}))
        registry._catalogue.learn(instance.plugin_id, registry.instances())
        registry.mark(instance, InstanceState.SERVING)
        return instance

    return add


@pytest.mark.parametrize(
    ("runner_id", "plugin_id"),
    [
        (RUNNER, "acme/desk"),
        ("acme/desk/default", ""),
        ("plugin:acme/desk", ""),
        ("plugin:acme//default", ""),
        ("plugin:acme/desk/a/b", ""),
        ("", ""),
    ],
)
def test_plugin_is_read_from_a_runners_id(runner_id: str, plugin_id: str) -> None:
    assert plugin_of(runner_id) == plugin_id


async def test_least_busy_instance_takes_the_run(registry: Registry, serving: Add) -> None:
    busy, idle = serving(), serving()
    busy.acquire()
    assert registry.pick(RUNNER) is idle
    busy.release()
    idle.acquire()
    assert registry.pick(RUNNER) is busy


async def test_instances_that_are_equally_busy_take_turns(registry: Registry, serving: Add) -> None:
    all_of_them = {serving(), serving(), serving()}
    assert {registry.pick(RUNNER) for _ in range(3)} == all_of_them


async def test_only_serving_instances_with_this_runner_and_a_slot_are_picked(
    registry: Registry, serving: Add
) -> None:
    serving(runner_id="plugin:acme/desk/other")
    full, ill, tried = serving(max_runs=1), serving(), serving()
    full.acquire()
    registry.mark(ill, InstanceState.UNHEALTHY, "silent")
    assert registry.pick(RUNNER, exclude={tried}) is None
    assert registry.pick(RUNNER) is tried


async def test_session_stays_where_it_was(registry: Registry, serving: Add) -> None:
    serving(), serving()
    home = registry.pick(RUNNER, session_key="s")
    assert home is not None
    home.acquire()
    assert registry.pick(RUNNER, session_key="s") is home
    assert registry.pick(RUNNER, session_key="other") is not home


async def test_session_waits_for_its_instance_and_leaves_it_only_when_that_does_not_serve(
    registry: Registry, serving: Add
) -> None:
    serving(max_runs=1), serving(max_runs=1)
    home = registry.pick(RUNNER, session_key="s")
    assert home is not None
    home.acquire()
    assert registry.pick(RUNNER, session_key="s") is None
    registry.mark(home, InstanceState.UNHEALTHY, "silent")
    assert registry.pick(RUNNER, session_key="s") not in {home, None}


async def test_slot_is_taken_only_where_there_is_one(serving: Add, registry: Registry) -> None:
    instance = serving(max_runs=1)
    instance.acquire()
    assert instance.active_runs == 1
    with pytest.raises(SlotUnavailable, match="1 of 1"):
        instance.acquire()
    instance.release()
    registry.mark(instance, InstanceState.DRAINING)
    with pytest.raises(SlotUnavailable, match="draining"):
        instance.acquire()
    with pytest.raises(ValueError, match="without acquire"):
        instance.release()


async def test_waiting_ends_at_once_when_a_slot_frees(registry: Registry, serving: Add) -> None:
    instance = serving(max_runs=1)
    instance.acquire()
    # Longer than the timeout: a slot is waited for as long as the caller likes.
    waiting = asyncio.create_task(registry.wait_for(RUNNER, timeout_seconds=0.01))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    instance.release()
    assert await asyncio.wait_for(waiting, 1) is instance


async def test_waiting_ends_at_once_when_an_instance_serves(
    registry: Registry, serving: Add
) -> None:
    registry.add(plugin_id="acme/desk", found_by=FoundBy.FOLDER, address="unix:/nowhere")
    waiting = asyncio.create_task(registry.wait_for(RUNNER))
    await asyncio.sleep(0)
    instance = serving()
    assert await asyncio.wait_for(waiting, 1) is instance


async def test_waiting_for_a_restart_has_an_end(registry: Registry, serving: Add) -> None:
    registry.lose(serving(), InstanceState.UNHEALTHY, "it crashed")
    started = asyncio.get_running_loop().time()
    assert await registry.wait_for(RUNNER, timeout_seconds=0.05) is None
    # The loop counts in milliseconds.
    assert asyncio.get_running_loop().time() - started >= 0.048


async def test_one_that_was_tried_in_vain_is_waited_for_until_it_is_replaced(
    registry: Registry, serving: Add
) -> None:
    tried = serving()
    waiting = asyncio.create_task(registry.wait_for(RUNNER, exclude={tried}))
    await asyncio.sleep(0)
    registry.lose(tried, InstanceState.UNHEALTHY, "it crashed")
    instance = serving()
    assert await asyncio.wait_for(waiting, 1) is instance


@pytest.mark.parametrize(
    "state", [InstanceState.FAILED, InstanceState.REFUSED, InstanceState.INCOMPATIBLE]
)
async def test_nobody_waits_for_what_will_not_come(
    registry: Registry, serving: Add, state: InstanceState
) -> None:
    serving(runner_id="plugin:acme/desk/other")
    registry.lose(serving(), state, "over")
    async with asyncio.timeout(1):
        assert await registry.wait_for(RUNNER) is None
        assert await registry.wait_for("plugin:no/such/runner") is None
        assert await registry.wait_for("nonsense") is None


async def test_those_who_wait_for_a_slot_get_it_in_their_order(
    registry: Registry, serving: Add
) -> None:
    instance = serving(max_runs=1)
    instance.acquire()
    order: list[int] = []

    async def run(number: int) -> None:
        found = await registry.wait_for(RUNNER)
        assert found is instance
        found.acquire()
        order.append(number)
        await asyncio.sleep(0)
        found.release()

    runs = [asyncio.create_task(run(number)) for number in range(20)]
    await asyncio.sleep(0)
    instance.release()
    await asyncio.gather(*runs)
    assert order == list(range(20))


async def taken(registry: Registry, **about: Any) -> Instance:
    """Wait for a slot and take it, as a run does."""
    found = await registry.wait_for(RUNNER, **about)
    assert found is not None
    found.acquire()
    return found


async def test_freed_slot_wakes_one_of_those_who_wait_and_not_all(
    registry: Registry, serving: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = serving(max_runs=1)
    instance.acquire()
    looks = 0
    choose = registry._selection.choose

    def counted(*arguments: Any, **named: Any) -> Instance | None:
        nonlocal looks
        looks += 1
        return choose(*arguments, **named)

    async def run() -> None:
        found = await taken(registry)
        await asyncio.sleep(0)
        found.release()

    runs = [asyncio.create_task(run()) for _ in range(200)]
    await asyncio.sleep(0)
    monkeypatch.setattr(registry._selection, "choose", counted)
    instance.release()
    await asyncio.gather(*runs)
    assert looks <= 3 * len(runs)


async def test_slot_that_is_promised_is_not_taken_by_who_comes_later(
    registry: Registry, serving: Add
) -> None:
    instance = serving(max_runs=1)
    instance.acquire()
    first = asyncio.create_task(taken(registry))
    await asyncio.sleep(0)
    instance.release()
    assert registry.pick(RUNNER) is None
    late = asyncio.create_task(taken(registry))
    assert await asyncio.wait_for(first, 1) is instance
    await asyncio.sleep(0)
    assert not late.done()
    instance.release()
    assert await asyncio.wait_for(late, 1) is instance
    instance.release()
    assert registry.pick(RUNNER) is instance


async def test_slot_that_its_taker_cannot_use_or_gives_up_is_the_next_ones(
    registry: Registry, serving: Add
) -> None:
    home, other = serving(max_runs=1), serving(max_runs=1)
    assert registry.pick(RUNNER, session_key="s") is home
    home.acquire()
    other.acquire()
    pinned = asyncio.create_task(taken(registry, session_key="s"))
    leaving = asyncio.create_task(taken(registry))
    free = asyncio.create_task(taken(registry))
    await asyncio.sleep(0)
    other.release()
    # It was told of the slot, and is cancelled before it looks.
    leaving.cancel()
    assert await asyncio.wait_for(free, 1) is other
    assert not pinned.done()
    home.release()
    assert await asyncio.wait_for(pinned, 1) is home
    await asyncio.wait([leaving])
    assert len(registry._lines["acme/desk"]) == 0
    assert not registry._lines["acme/desk"].is_promised


async def test_session_of_a_lost_instance_is_as_a_new_one(registry: Registry, serving: Add) -> None:
    lost, other = serving(), serving()
    assert registry.pick(RUNNER, session_key="s") is lost
    registry.lose(lost, InstanceState.FAILED, "over")
    assert not registry._selection._homes
    assert registry.pick(RUNNER, session_key="s") is other


async def test_session_that_was_unused_the_longest_is_forgotten_first() -> None:
    registry = Registry(identity=HostIdentity("host", "Host", "0.1.0"), remembered_sessions=2)
    for _ in range(2):
        instance = registry.add(
            plugin_id="acme/desk", found_by=FoundBy.FOLDER, address="unix:/nowhere"
        )
        manifest = manifest_pb2.RunnerManifest(id=RUNNER, version="1")
        instance.introduce(Introduction("id", "1", "", 0, {RUNNER: manifest}))
        registry.mark(instance, InstanceState.SERVING)
    home = registry.pick(RUNNER, session_key="a")
    assert home is not None
    home.acquire()
    registry.pick(RUNNER, session_key="b")
    assert registry.pick(RUNNER, session_key="a") is home
    registry.pick(RUNNER, session_key="c")
    assert registry.pick(RUNNER, session_key="a") is home
    assert [key for _, key in registry._selection._homes] == ["c", "a"]
    await registry.close()


async def test_token_names_its_instance_until_that_is_lost(
    registry: Registry, serving: Add
) -> None:
    instance = serving()
    assert instance.instance_token.startswith("rmi_")
    assert len(instance.instance_token) == len("rmi_") + 43
    assert instance.instance_token not in repr(instance)
    assert registry.find_by_token(instance.instance_token) is instance
    assert registry.find_by_token("rmi_other") is None
    registry.lose(instance, InstanceState.UNHEALTHY, "it crashed")
    assert registry.find_by_token(instance.instance_token) is None


async def test_lost_instance_tells_its_runs_and_stays_listed_with_the_reason(
    registry: Registry, serving: Add
) -> None:
    instance = serving()
    instance.acquire()
    registry.lose(instance, InstanceState.UNHEALTHY, "its process exited with code 3")
    assert instance.lost.is_set()
    assert registry.instances() == (instance,)
    assert instance.reason == "its process exited with code 3"
    assert registry.pick(RUNNER) is None


async def test_connection_is_closed_only_when_no_run_is_on_it(
    registry: Registry, serving: Add
) -> None:
    instance = serving()
    instance.acquire()
    registry.lose(instance, InstanceState.UNHEALTHY, "it crashed")
    await asyncio.sleep(0.01)
    assert "SHUTDOWN" not in str(instance.channel.get_state())
    instance.release()
    await asyncio.sleep(0.01)
    assert "SHUTDOWN" in str(instance.channel.get_state())


async def test_newest_instance_says_what_a_runner_is(registry: Registry, serving: Add) -> None:
    old = serving(version="1")
    serving(version="2")
    manifest = registry.manifest(RUNNER)
    assert manifest is not None
    assert manifest.version == "2"
    assert [each.id for each in registry.runners()] == [RUNNER]
    registry.remove(old)
    assert registry.manifest(RUNNER) is manifest


async def test_runner_is_known_while_its_plugin_is_restarted_and_forgotten_with_it(
    registry: Registry, serving: Add
) -> None:
    instance = serving()
    registry.lose(instance, InstanceState.UNHEALTHY, "it crashed")
    again = registry.add(
        plugin_id="acme/desk", found_by=FoundBy.FOLDER, address="unix:/x", replaces=instance
    )
    assert registry.instances() == (again,)
    assert registry.manifest(RUNNER) is not None
    registry.remove(again)
    assert registry.manifest(RUNNER) is None
    assert registry.runners() == ()


async def test_runner_that_a_new_version_no_longer_has_is_forgotten(
    registry: Registry, serving: Add
) -> None:
    old = serving(runner_id="plugin:acme/desk/old")
    registry.remove(old)
    registry.lose(serving(runner_id="plugin:acme/desk/gone"), InstanceState.UNHEALTHY, "it crashed")
    serving()
    assert [each.id for each in registry.runners()] == [RUNNER]


async def test_changes_are_told(registry: Registry, serving: Add) -> None:
    fault = ManifestFault("acme/desk", "", "desk/manifest.yaml: kind", "must be Plugin")
    instance = serving()
    changes: list[Callable[[], None]] = [
        lambda: registry.mark(instance, InstanceState.UNHEALTHY, "silent"),
        lambda: registry.report_faults("here", [fault]),
        lambda: registry.remove(instance),
    ]
    for change in changes:
        told = asyncio.create_task(registry.changed())
        await asyncio.sleep(0)
        change()
        await asyncio.wait_for(told, 1)
    assert registry.faults() == (fault,)
    registry.report_faults("here", [])
    assert registry.faults() == ()
