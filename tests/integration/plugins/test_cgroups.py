"""The kernel holds the limits of plugins where a cgroup is delegated to the host.

Skipped elsewhere. `systemd-run --user --scope -p Delegate=yes pytest FILE` delegates one.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from host_service.registry import InstanceState
from host_service.supervisor import DelegatedCgroup, RestartPolicy
from host_service.supervisor.cgroup_place import HOST_GROUP, own_group, processes_in
from host_service.supervisor.cgroups import in_force_for, look
from host_service.supervisor.child import Child, Launch
from host_service.supervisor.errors import CgroupUnusable
from host_service.supervisor.guardian import remove_group, started_at
from host_service.supervisor.manifest import Limits
from tests.integration.plugins.mesh import Mesh, shell, write_plugin
from tests.integration.plugins.processes import eventually, is_alive, parent, read_numbers

MakeMesh = Callable[..., Mesh]

MEBIBYTE = 2**20
NOBODY = 65534
ONCE = RestartPolicy(ready_timeout_seconds=120, first_delay_seconds=120, longest_delay_seconds=120)
# Each page is written to, so that all of them count.
HOG = "kept = []\nwhile True: kept.append(bytearray(b'x' * (4 << 20)))"
BUSY = "import time; time.sleep(0.1)\nwhile True: pass"


@pytest.fixture(scope="module")
def delegated() -> Iterator[DelegatedCgroup]:
    """The group that this process is in, made ready, and afterwards as it was."""
    try:
        look()
    except CgroupUnusable as reason:
        pytest.skip(f"no cgroup is delegated here: {reason}")
    was_in = own_group()
    made = DelegatedCgroup.enter()
    before = made.holds
    yield made
    for controller in before:
        with suppress(OSError):
            (made.base / "cgroup.subtree_control").write_text(f"-{controller}")
    (was_in / "cgroup.procs").write_text(str(os.getpid()))
    with suppress(OSError):
        (made.base / HOST_GROUP).rmdir()


@pytest.fixture
def with_memory(delegated: DelegatedCgroup) -> DelegatedCgroup:
    """One that holds memory."""
    if "memory" not in delegated.holds:
        pytest.skip("memory is not delegated here")
    return delegated


def launch(
    cgroups: DelegatedCgroup, folder: Path, command: list[str], limits: Limits | None = None
) -> Launch:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    environment["RUNMESH_LISTEN"] = f"unix:{folder}/1.sock"
    return Launch(
        "acme/desk", tuple(command), folder, environment, limits or Limits(), cgroups=cgroups
    )


def groups(cgroups: DelegatedCgroup) -> list[Path]:
    return list(cgroups.base.glob("runmesh-plugin.*"))


async def test_hog_is_killed_at_its_limit_with_all_that_it_started(
    with_memory: DelegatedCgroup, tmp_path: Path
) -> None:
    script = f"""sleep 600 & echo $! >> pids
    setsid sleep 600 & echo $! >> pids
    exec {sys.executable} -c "{HOG}" """
    limits = Limits(memory_bytes=64 * MEBIBYTE)
    child = await Child.start(launch(with_memory, tmp_path, shell(script), limits))
    (group,) = groups(with_memory)
    pids = await read_numbers(tmp_path / "pids", 2)
    ended = await asyncio.wait_for(asyncio.shield(child.ended), 60)
    await child.gone()
    assert ended.signal == signal.SIGKILL
    assert ended.memory_bytes
    assert 60 * MEBIBYTE <= ended.memory_bytes <= 64 * MEBIBYTE
    assert str(ended).startswith("was killed: over its memory limit of 64 MiB (it used 6")
    assert not [each for each in pids if is_alive(each)]
    assert not group.exists()


async def test_hog_in_a_grandchild_of_its_own_session_counts_too(
    with_memory: DelegatedCgroup, tmp_path: Path
) -> None:
    script = f'setsid {sys.executable} -c "{HOG}" & sleep 600'
    limits = Limits(memory_bytes=64 * MEBIBYTE)
    child = await Child.start(launch(with_memory, tmp_path, shell(script), limits))
    ended = await asyncio.wait_for(asyncio.shield(child.ended), 60)
    await child.gone()
    assert "over its memory limit of 64 MiB" in str(ended)


async def test_reason_is_in_the_list_of_runners_and_no_neighbour_is_disturbed(
    with_memory: DelegatedCgroup, base: Path, make_mesh: MakeMesh
) -> None:
    write_plugin(base, "desk", shell("exec sleep 600"), limits={"memory": "48MiB"})
    write_plugin(base, "hungry", [sys.executable, "-c", HOG], limits={"memory": "48MiB"})
    mesh = make_mesh(restart=ONCE, cgroups=with_memory)
    await mesh.supervisor.start()
    await mesh.until("hungry", InstanceState.UNHEALTHY, timeout_seconds=60)
    assert "was killed: over its memory limit of 48 MiB" in mesh.instance("hungry").reason
    neighbour = mesh.instance("desk").process_id
    assert neighbour is not None
    assert is_alive(neighbour)
    assert neighbour in {each for group in groups(with_memory) for each in processes_in(group)}
    await mesh.close()
    assert not groups(with_memory)


async def test_share_of_a_processor_is_held(delegated: DelegatedCgroup, tmp_path: Path) -> None:
    if "cpu" not in delegated.holds:
        pytest.skip("cpu is not delegated here")
    command = shell(f'{sys.executable} -c "{BUSY}" & exec {sys.executable} -c "{BUSY}"')
    child = await Child.start(launch(delegated, tmp_path, command, Limits(cpu=0.25)))
    (group,) = groups(delegated)

    def used_seconds() -> float:
        words = (group / "cpu.stat").read_text().split()
        return int(words[words.index("usage_usec") + 1]) / 1e6

    def times_held() -> int:
        words = (group / "cpu.stat").read_text().split()
        return int(words[words.index("nr_throttled") + 1])

    try:
        await eventually(lambda: times_held() > 0, timeout_seconds=60)
        before, begun = used_seconds(), time.monotonic()
        await asyncio.sleep(4)
        share = (used_seconds() - before) / (time.monotonic() - begun)
        # It is held where two would be used; both processes together, on whichever processors.
        assert share < 0.35, share
        assert len(os.sched_getaffinity(child.process_id)) == len(os.sched_getaffinity(0))
    finally:
        await child.stop(0)


async def test_nothing_survives_when_host_and_guardian_are_killed(
    delegated: DelegatedCgroup, tmp_path: Path
) -> None:
    # Neither in its session, nor in its environment, nor below its guardian any more.
    script = "setsid env -i sh -c 'trap \"\" TERM; echo $$ >> pids; while :; do sleep 1; done' &"
    child = await Child.start(launch(delegated, tmp_path, shell(f"{script} exec sleep 600")))
    (group,) = groups(delegated)
    (escaped,) = await read_numbers(tmp_path / "pids", 1)
    os.kill(parent(child.process_id), signal.SIGKILL)
    await child.gone()
    assert not is_alive(escaped)
    assert not group.exists()


async def test_groups_that_a_plugin_makes_are_removed_with_its_own(
    delegated: DelegatedCgroup, tmp_path: Path
) -> None:
    child = await Child.start(launch(delegated, tmp_path, shell("exec sleep 600")))
    (group,) = groups(delegated)
    (group / "inner" / "most").mkdir(parents=True)
    (group / "inner" / "most" / "cgroup.procs").write_text(str(child.process_id))
    await child.stop(0.1)
    assert not group.exists()
    assert not is_alive(child.process_id)


async def test_command_that_cannot_start_leaves_no_group(
    delegated: DelegatedCgroup, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="its command no-such-command is not there"):
        await Child.start(launch(delegated, tmp_path, ["no-such-command"]))
    assert not groups(delegated)


def test_what_a_dead_host_left_is_ended_and_a_living_host_keeps_its_own(
    delegated: DelegatedCgroup,
) -> None:
    with subprocess.Popen(["sleep", "600"]) as left, subprocess.Popen(["sleep", "600"]) as kept:
        dead = delegated.base / f"runmesh-plugin.{os.getpid()}.1.1.acme.desk"
        living = f"runmesh-plugin.{os.getpid()}.{started_at(os.getpid())}.9.acme.desk"
        for folder, process in ((dead, left), (delegated.base / living, kept)):
            folder.mkdir()
            (folder / "cgroup.procs").write_text(str(process.pid))
        delegated.remove_leftovers()
        try:
            assert left.wait(10) == -signal.SIGKILL
            assert not dead.exists()
            assert kept.poll() is None
        finally:
            remove_group(str(delegated.base / living))


def test_running_host_is_known_by_its_group(delegated: DelegatedCgroup) -> None:
    found = in_force_for(os.getpid())
    assert found is not None
    assert (found.base, found.holds) == (delegated.base, delegated.holds)
    assert in_force_for(1) is None or os.getpid() == 1


AS_NOBODY = """
import asyncio, os, sys
from pathlib import Path
from host_service.supervisor.cgroups import DelegatedCgroup
from host_service.supervisor.child import Child, Launch
from host_service.supervisor.manifest import Limits

async def main():
    cgroups = DelegatedCgroup.enter()
    print(os.geteuid(), *sorted(cgroups.holds), flush=True)
    folder = Path(sys.argv[1])
    environment = {"PATH": os.environ["PATH"], "RUNMESH_LISTEN": "unix:/none"}
    command = (sys.executable, "-c", sys.argv[2])
    limits = Limits(memory_bytes=64 << 20, cpu=1.5)
    launch = Launch("acme/desk", command, folder, environment, limits, cgroups=cgroups)
    child = await Child.start(launch)
    print(await child.ended, flush=True)
    await child.gone()
    print(*sorted(each.name for each in cgroups.base.iterdir() if each.is_dir()), flush=True)

asyncio.run(main())
"""


def test_user_to_whom_a_group_was_delegated_needs_no_root(
    with_memory: DelegatedCgroup, tmp_path: Path
) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user, with setpriv")
    group = with_memory.base / "delegated to nobody"
    group.mkdir()
    try:
        for path in (group, group / "cgroup.procs", group / "cgroup.subtree_control"):
            os.chown(path, NOBODY, NOBODY)
        # It may read whatever this Python needs, and write nothing that is not its own.
        become = "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps +dac_read_search"
        script = f'echo $$ > "$0/cgroup.procs"; exec {become} --ambient-caps +dac_read_search "$@"'
        command = [sys.executable, "-c", AS_NOBODY, "/", HOG]
        done = subprocess.run(
            ["/bin/sh", "-c", script, str(group), *command],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[3],
            timeout=120,
            check=False,
        )
        said = done.stdout.splitlines()
        assert len(said) == 3, done.stderr
        assert said[0] == f"{NOBODY} cpu memory"
        assert said[1].startswith("was killed: over its memory limit of 64 MiB")
        assert said[2] == HOST_GROUP
    finally:
        for inner in group.glob("*/"):
            inner.rmdir()
        group.rmdir()
