"""Which group is a host's own, whether it may have groups in it, and what is set in those.

On folders in the shape of the kernel's; tests/integration/plugins/test_cgroups.py asks the kernel.
"""

import os
from pathlib import Path

import pytest

from host_service.supervisor import cgroups
from host_service.supervisor.cgroup_place import HOST_GROUP, own_group
from host_service.supervisor.cgroups import CgroupUse, DelegatedCgroup, enter_cgroup, look
from host_service.supervisor.errors import CgroupUnusable
from host_service.supervisor.guardian import started_at
from host_service.supervisor.manifest import Limits

MEBIBYTE = 2**20


class Tree:
    """A cgroup file system, and a process in it, as they look in a folder.

    Args:
        folder: Where to make them.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "mounted here"
        self.process = folder / "proc" / "self"
        self.process.mkdir(parents=True)
        self.group("")
        self.mount("/", self.root)

    def group(self, name: str, *, controllers: str = "cpuset cpu io memory pids") -> Path:
        """Makes a group."""
        group = self.root / name
        group.mkdir(parents=True, exist_ok=True)
        (group / "cgroup.procs").write_text("")
        (group / "cgroup.controllers").write_text(f"{controllers}\n")
        (group / "cgroup.subtree_control").write_text("")
        if name:
            (group / "cgroup.type").write_text("domain\n")
        return group

    def mount(self, root: str, *mounted: Path) -> None:
        """Says what is mounted: a part of the tree, at places."""
        lines = ["31 23 0:28 / / rw - tmpfs tmpfs rw", "32 31 0:29 / /x rw - cgroup cgroup rw,cpu"]
        for place in mounted:
            escaped = str(place).replace(" ", r"\040")
            lines.append(f"41 31 0:38 {root} {escaped} rw shared:9 - cgroup2 cgroup2 rw")
        (self.process / "mountinfo").write_text("\n".join(lines))

    def enter(self, place: str) -> None:
        """Puts the process into a group."""
        (self.process / "cgroup").write_text(f"8:pids:/\n1:cpu:/\n0::{place}\n")

    def look(self) -> Path:
        """What a host would use."""
        return look(self.process, service_manager=self.root / "no systemd")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """An empty tree."""
    return Tree(tmp_path)


def test_own_group_is_found_where_it_is_mounted(tree: Tree) -> None:
    group = tree.group("system.slice/runmesh.service")
    tree.enter("/system.slice/runmesh.service")
    assert own_group(tree.process) == group


def test_own_group_is_found_in_a_namespace_where_it_is_the_root(tree: Tree) -> None:
    tree.enter("/")
    assert own_group(tree.process) == tree.root


def test_own_group_is_found_where_only_a_part_of_the_tree_is_mounted(tree: Tree) -> None:
    group = tree.group("inner")
    tree.mount("/docker/abc", tree.root.with_name("nothing here"), tree.root)
    tree.enter("/docker/abc/inner")
    assert own_group(tree.process) == group
    tree.enter("/docker/abc")
    assert own_group(tree.process) == tree.root


@pytest.mark.parametrize("place", ["/../elsewhere", "/docker/abcdef", "/not/there"])
def test_group_that_is_not_mounted_is_told(tree: Tree, place: str) -> None:
    tree.mount("/docker/abc" if "docker" in place else "/", tree.root)
    tree.enter(place)
    with pytest.raises(CgroupUnusable, match=f"cgroup {place} is not mounted here"):
        tree.look()


def test_systems_without_version_2_are_told(tree: Tree) -> None:
    (tree.process / "cgroup").write_text("4:memory:/x\n")
    with pytest.raises(CgroupUnusable, match="no cgroup v2"):
        tree.look()
    (tree.process / "cgroup").unlink()
    with pytest.raises(CgroupUnusable, match="tells of no cgroups"):
        tree.look()


def test_group_without_controllers_is_not_used(tree: Tree) -> None:
    tree.group("bare", controllers="hugetlb")
    tree.enter("/bare")
    with pytest.raises(CgroupUnusable, match="neither memory nor cpu is handed down"):
        tree.look()


def test_group_with_strangers_is_not_used_unless_it_is_a_container(tree: Tree) -> None:
    group = tree.group("shared")
    tree.enter("/shared")
    (group / "cgroup.procs").write_text(f"{os.getpid()}\n4000001\n4000002\n")
    with pytest.raises(CgroupUnusable, match="2 other processes are in cgroup"):
        tree.look()
    (group / "cgroup.procs").write_text(f"1\n{os.getpid()}\n4000001\n")
    assert tree.look() == group


def test_threaded_group_is_not_used(tree: Tree) -> None:
    group = tree.group("threads")
    (group / "cgroup.type").write_text("domain threaded\n")
    tree.enter("/threads")
    with pytest.raises(CgroupUnusable, match="threaded"):
        tree.look()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write where systemd rules")
def test_root_leaves_alone_what_systemd_did_not_delegate(tree: Tree, tmp_path: Path) -> None:
    group = tree.group("system.slice/other.service")
    tree.enter("/system.slice/other.service")
    with pytest.raises(CgroupUnusable, match="systemd keeps cgroup"):
        look(tree.process, service_manager=tmp_path)
    try:
        os.setxattr(group, "trusted.delegate", b"1")
    except OSError:
        pytest.skip("this file system takes no attributes")
    assert look(tree.process, service_manager=tmp_path) == group


def test_host_moves_to_a_group_of_its_own_and_asks_for_controllers(tree: Tree) -> None:
    group = tree.group("mine")
    tree.enter("/mine")
    # Folders do not do what is written to their files: here nothing is handed down in the end.
    with pytest.raises(CgroupUnusable, match="hands nothing down"):
        DelegatedCgroup.enter(tree.process, service_manager=tree.root / "none")
    assert (group / HOST_GROUP / "cgroup.procs").read_text() == str(os.getpid())
    assert (group / "cgroup.subtree_control").read_text() == "+cpu"


def test_second_host_in_a_group_stands_beside_the_first(tree: Tree) -> None:
    group = tree.group("mine")
    tree.group(f"mine/{HOST_GROUP}", controllers="")
    tree.enter(f"/mine/{HOST_GROUP}")
    assert tree.look() == group


@pytest.mark.parametrize(
    ("handed_down", "expected"),
    [
        ("cpu memory", {"memory.max": "12582912", "cpu.max": "150000 100000"}),
        ("memory", {"memory.max": "12582912"}),
        ("cpu", {"cpu.max": "150000 100000"}),
    ],
)
def test_group_of_a_plugin_has_the_limits_that_can_be_held(
    tree: Tree, handed_down: str, expected: dict[str, str]
) -> None:
    group = tree.group("mine")
    (group / "cgroup.subtree_control").write_text(handed_down)
    made = DelegatedCgroup(group).make(
        "acme/desk", Limits(open_files=99, cpu=1.5, memory_bytes=12 * MEBIBYTE)
    )
    assert made.holds == set(handed_down.split())
    assert {each.name: each.read_text() for each in made.folder.iterdir()} == expected
    assert made.folder.name.endswith(".1.acme.desk")


def test_group_of_a_plugin_without_limits_sets_none(tree: Tree) -> None:
    group = tree.group("mine")
    (group / "cgroup.subtree_control").write_text("cpu memory")
    made = DelegatedCgroup(group).make("acme/desk", Limits())
    assert not list(made.folder.iterdir())


def test_tiny_share_of_a_processor_is_the_least_that_the_kernel_takes(tree: Tree) -> None:
    group = tree.group("mine")
    (group / "cgroup.subtree_control").write_text("cpu")
    made = DelegatedCgroup(group).make("acme/desk", Limits(cpu=0.0001))
    assert (made.folder / "cpu.max").read_text() == "1000 100000"


def test_only_what_dead_hosts_left_is_removed(tree: Tree) -> None:
    group = tree.group("mine")
    delegated = DelegatedCgroup(group)
    own = delegated.make("acme/desk", Limits()).folder
    living = group / f"runmesh-plugin.{os.getppid()}.{started_at(os.getppid())}.1.acme.desk"
    reused = group / f"runmesh-plugin.{os.getppid()}.1.1.acme.desk"
    dead = group / "runmesh-plugin.4000001.77.1.acme.desk"
    others = group / "runmesh-plugin.notes"
    for folder in (living, reused, dead, others):
        folder.mkdir()
    delegated.remove_leftovers()
    assert {own, living, others} == set(group.glob("runmesh-plugin.*"))


def test_policy_decides_whether_a_missing_group_stops_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def enter() -> DelegatedCgroup:
        raise CgroupUnusable("there is none")

    monkeypatch.setattr(cgroups.DelegatedCgroup, "enter", enter)
    assert enter_cgroup(CgroupUse.AUTO) is None
    with pytest.raises(CgroupUnusable, match="there is none"):
        enter_cgroup(CgroupUse.ON)


def test_nobody_looks_for_groups_that_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cgroups.DelegatedCgroup, "enter")
    assert enter_cgroup(CgroupUse.OFF) is None
