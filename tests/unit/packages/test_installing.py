"""Tests of installations: what changes, in which order, and what is there when a step fails."""

import fcntl
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from host_service.packages import installing
from host_service.packages.errors import (
    ArchiveRefused,
    InstallFailed,
    NotAPlugin,
    NotInstalled,
    PackageError,
    PluginDoesNotRun,
)
from host_service.packages.installing import Seen
from host_service.packages.packing import PluginFolder, pack
from host_service.supervisor.folders import PluginFolders
from tests.unit.packages.folders import Steps, an_installer, write_plugin

STEPS = ("checking", "unpacking", "building", "trying", "switching", "waiting")


class Host:
    """A host that runs, whose supervisor sees what is in the folder; a test says how it goes."""

    def __init__(self, data: Path, *, new_state: str = "serving") -> None:
        self._folders = PluginFolders([data / "plugins"])
        self.new_state = new_state
        self.known: dict[Path, str] = {}

    def instances(self, _plugin_id: str, /) -> Sequence[Seen] | None:
        found = list(self._folders.scan().items())
        for folder, _ in found:
            self.known.setdefault(folder, "serving" if not self.known else self.new_state)
        return [
            Seen(str(folder), self.known[folder], getattr(manifest, "version", ""), "it broke")
            for folder, manifest in found
        ]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def a_package(folder: Path, version: str, program: str = "#!/bin/sh\n") -> str:
    plugin = write_plugin(folder / f"source-{version}", version=version, program=program)
    return str(pack(PluginFolder.read(plugin), folder).path)


def running(data: Path) -> dict[str, str]:
    """What a host would run: the version and the program of each plugin."""
    found = PluginFolders([data / "plugins"]).scan()
    return {
        manifest.version: (folder / "run").read_text()
        for folder, manifest in found.items()
        if not isinstance(manifest, Exception)
    }


def test_installed_plugin_is_there_whole_and_listed(tmp_path: Path, data: Path) -> None:
    steps = Steps()
    installer = an_installer(data, steps=steps)
    outcome = installer.install(a_package(tmp_path, "1.0.0"))
    assert (outcome.plugin_id, outcome.version, outcome.before) == ("acme/weather", "1.0.0", "")
    assert outcome.serves is None
    assert running(data) == {"1.0.0": "#!/bin/sh\n"}
    [installed] = installer.folders.all()
    assert (installed.plugin_id, installed.version) == ("acme/weather", "1.0.0")
    assert installed.record is not None
    assert installed.record.source == str(tmp_path / "weather-1.0.0.rmpkg")
    assert [step.split()[0] for step in steps.steps] == [*STEPS[:5]]


def test_folder_is_installed_as_its_package_would_be(tmp_path: Path, data: Path) -> None:
    folder = write_plugin(tmp_path / "weather")
    (folder / "x.key").write_text("secret")
    an_installer(data).install(str(folder))
    assert running(data) == {"1.0.0": "#!/bin/sh\n"}
    assert not list(data.rglob("x.key"))


def test_data_folder_may_be_moved(tmp_path: Path, data: Path) -> None:
    an_installer(data).install(a_package(tmp_path, "1.0.0"))
    moved = data.rename(tmp_path / "moved")
    assert running(moved) == {"1.0.0": "#!/bin/sh\n"}


def test_data_folder_behind_a_link_keeps_the_version_before(tmp_path: Path, data: Path) -> None:
    data.mkdir()
    link = tmp_path / "link"
    link.symlink_to(data)
    an_installer(link).install(a_package(tmp_path, "1.0.0"))
    an_installer(link).upgrade(a_package(tmp_path, "2.0.0"))
    kept = sorted(each.name[:5] for each in (data / "plugin-versions/acme+weather").iterdir())
    assert kept == ["1.0.0", "2.0.0"]


def test_install_and_upgrade_know_what_is_there(tmp_path: Path, data: Path) -> None:
    first, second = a_package(tmp_path, "1.0.0"), a_package(tmp_path, "2.0.0")
    with pytest.raises(NotInstalled, match="runmesh install"):
        an_installer(data).upgrade(first)
    an_installer(data).install(first)
    with pytest.raises(InstallFailed, match=r"1\.0\.0 is installed already: use 'runmesh upgrade'"):
        an_installer(data).install(second)
    assert not an_installer(data).upgrade(first).is_news
    outcome = an_installer(data).upgrade(second)
    assert (outcome.version, outcome.before) == ("2.0.0", "1.0.0")
    assert list(running(data)) == ["2.0.0"]


def test_version_before_is_kept_and_older_ones_are_not(tmp_path: Path, data: Path) -> None:
    an_installer(data).install(a_package(tmp_path, "1.0.0"))
    for version in ("2.0.0", "3.0.0"):
        an_installer(data).upgrade(a_package(tmp_path, version))
    kept = sorted(each.name[:5] for each in (data / "plugin-versions/acme+weather").iterdir())
    assert kept == ["2.0.0", "3.0.0"]


@pytest.mark.parametrize("step", STEPS)
def test_upgrade_that_fails_in_any_step_leaves_the_old_version(
    step: str, tmp_path: Path, data: Path
) -> None:
    host, steps = Host(data), Steps()
    installer = an_installer(data, mesh=host, steps=steps)
    installer.install(a_package(tmp_path, "1.0.0", "#!/bin/old\n"))
    host.instances("acme/weather")
    steps.fail_at = step
    with pytest.raises(InstallFailed, match="No space left on device"):
        installer.upgrade(a_package(tmp_path, "2.0.0", "#!/bin/new\n"))
    assert running(data) == {"1.0.0": "#!/bin/old\n"}
    left = [each.name[:5] for each in (data / "plugin-versions").glob("[!.]*/*")]
    assert left == ["1.0.0"]
    assert not list((data / "plugin-versions").glob(".staging-*"))
    steps.fail_at = None
    assert installer.upgrade(str(tmp_path / "weather-2.0.0.rmpkg")).serves is True
    assert running(data) == {"2.0.0": "#!/bin/new\n"}


@pytest.mark.parametrize("step", STEPS)
def test_installation_that_fails_in_any_step_leaves_nothing(
    step: str, tmp_path: Path, data: Path
) -> None:
    steps = Steps()
    steps.fail_at = step
    with pytest.raises(InstallFailed, match="No space left on device"):
        an_installer(data, mesh=Host(data), steps=steps).install(a_package(tmp_path, "1.0.0"))
    assert running(data) == {}
    assert not list((data / "plugin-versions").rglob("run"))
    assert not list((data / "plugins").iterdir())


def test_upgrade_that_does_not_run_is_refused_before_anything_changes(
    tmp_path: Path, data: Path
) -> None:
    an_installer(data).install(a_package(tmp_path, "1.0.0"))
    seen: list[list[str]] = []

    def fail(_plugin: PluginFolder) -> None:
        seen.append(list(running(data)))
        raise PluginDoesNotRun("it does not run")

    with pytest.raises(PluginDoesNotRun):
        an_installer(data, try_plugin=fail).upgrade(a_package(tmp_path, "2.0.0"))
    assert seen == [["1.0.0"]]
    assert list(running(data)) == ["1.0.0"]


@pytest.mark.parametrize("state", ["failed", "refused", "incompatible", "unhealthy"])
def test_upgrade_that_breaks_on_the_host_alone_is_put_back(
    state: str, tmp_path: Path, data: Path
) -> None:
    host = Host(data, new_state=state)
    an_installer(data, mesh=host).install(a_package(tmp_path, "1.0.0"))
    with pytest.raises(
        InstallFailed, match=r"2\.0\.0 does not run on the host: it broke: 1\.0\.0 is"
    ):
        an_installer(data, mesh=host).upgrade(a_package(tmp_path, "2.0.0"))
    assert list(running(data)) == ["1.0.0"]


def test_upgrade_that_the_user_interrupts_is_put_back(tmp_path: Path, data: Path) -> None:
    steps = Steps()
    host = Host(data, new_state="starting")
    an_installer(data, mesh=host).install(a_package(tmp_path, "1.0.0"))

    def interrupt(step: str) -> None:
        if step.startswith("waiting"):
            raise KeyboardInterrupt

    steps.on_step = interrupt
    with pytest.raises(KeyboardInterrupt):
        an_installer(data, mesh=host, steps=steps).upgrade(a_package(tmp_path, "2.0.0"))
    assert list(running(data)) == ["1.0.0"]


def test_upgrade_that_never_comes_to_serve_is_put_back(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing, "_SERVING_SECONDS", 0.3)
    host = Host(data, new_state="starting")
    an_installer(data, mesh=host).install(a_package(tmp_path, "1.0.0"))
    with pytest.raises(InstallFailed, match="did not come to serve on the host"):
        an_installer(data, mesh=host).upgrade(a_package(tmp_path, "2.0.0"))
    assert list(running(data)) == ["1.0.0"]


def test_host_that_does_not_run_the_plugin_is_told_of(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Indifferent:
        def instances(self, _plugin_id: str, /) -> Sequence[Seen] | None:
            return []

    monkeypatch.setattr(installing, "_NOTICED_SECONDS", 0.2)
    outcome = an_installer(data, mesh=Indifferent()).install(a_package(tmp_path, "1.0.0"))
    assert outcome.serves is False
    assert list(running(data)) == ["1.0.0"]


def test_host_that_ends_meanwhile_undoes_nothing(tmp_path: Path, data: Path) -> None:
    class Ending:
        def __init__(self) -> None:
            self.asked = 0

        def instances(self, _plugin_id: str, /) -> Sequence[Seen] | None:
            self.asked += 1
            return [] if self.asked < 3 else None

    outcome = an_installer(data, mesh=Ending()).install(a_package(tmp_path, "1.0.0"))
    assert outcome.serves is None
    assert list(running(data)) == ["1.0.0"]


def test_file_that_changes_during_its_installation_is_installed_as_it_was(
    tmp_path: Path, data: Path
) -> None:
    package = Path(a_package(tmp_path, "1.0.0", "#!/bin/good\n"))
    other = tmp_path / "other"
    other.mkdir()
    evil = Path(a_package(other, "1.0.0", "#!/bin/evil\n")).read_bytes()
    steps = Steps()

    def exchange(_step: str) -> None:
        package.write_bytes(evil)

    steps.on_step = exchange
    an_installer(data, steps=steps).install(str(package))
    assert running(data) == {"1.0.0": "#!/bin/good\n"}


def test_two_at_once_do_not_meet_and_what_a_killed_one_left_is_removed(
    tmp_path: Path, data: Path
) -> None:
    package = a_package(tmp_path, "1.0.0")
    versions = data / "plugin-versions"
    left = versions / ".staging-left"
    left.mkdir(parents=True)
    (left / "run").touch()
    lock = os.open(versions / ".lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(InstallFailed, match="another runmesh"):
        an_installer(data).install(package)
    assert left.exists()
    os.close(lock)
    an_installer(data).install(package)
    assert not left.exists()


def test_plugin_put_there_by_hand_is_not_upgraded_and_can_be_removed(
    tmp_path: Path, data: Path
) -> None:
    write_plugin(data / "plugins" / "mine")
    package = a_package(tmp_path, "2.0.0")
    with pytest.raises(InstallFailed, match="is installed already"):
        an_installer(data).install(package)
    with pytest.raises(InstallFailed, match="put it by hand"):
        an_installer(data).upgrade(package)
    [installed] = an_installer(data).folders.all()
    assert installed.record is None
    an_installer(data).remove("acme/weather")
    assert not list((data / "plugins").iterdir())
    an_installer(data).install(package)


def test_link_that_somebody_made_is_removed_and_what_it_leads_to_is_not(
    tmp_path: Path, data: Path
) -> None:
    source = write_plugin(tmp_path / "mine")
    (data / "plugins").mkdir(parents=True)
    (data / "plugins" / "mine").symlink_to(source)
    an_installer(data).remove("acme/weather")
    assert not list((data / "plugins").iterdir())
    assert (source / "run").exists()


def test_removal_waits_until_the_host_has_stopped_it(tmp_path: Path, data: Path) -> None:
    an_installer(data).install(a_package(tmp_path, "1.0.0"))
    stopped = threading.Event()
    there: list[bool] = []

    class Stopping:
        def instances(self, _plugin_id: str, /) -> Sequence[Seen] | None:
            there.append(bool(list((data / "plugin-versions").rglob("run"))))
            return [] if stopped.is_set() else [Seen("1", "draining", "1.0.0", "")]

    threading.Timer(0.3, stopped.set).start()
    installed = an_installer(data, mesh=Stopping()).remove("acme/weather")
    assert installed.version == "1.0.0"
    assert len(there) >= 2
    assert all(there)
    assert not list((data / "plugin-versions").rglob("run"))
    assert not list((data / "plugins").iterdir())
    with pytest.raises(NotInstalled, match="runmesh list"):
        an_installer(data).remove("acme/weather")


def test_removal_does_not_wait_for_what_comes_in_its_place(tmp_path: Path, data: Path) -> None:
    an_installer(data).install(a_package(tmp_path, "1.0.0"))

    class Shipped:
        def __init__(self) -> None:
            self.asked = 0

        def instances(self, _plugin_id: str, /) -> Sequence[Seen] | None:
            self.asked += 1
            return [Seen(str(self.asked > 3), "serving", "1.0.0", "")]

    mesh = Shipped()
    an_installer(data, mesh=mesh).remove("acme/weather")
    assert mesh.asked == 4


def test_digest_must_match_where_one_is_given(tmp_path: Path, data: Path) -> None:
    package = a_package(tmp_path, "1.0.0")
    with pytest.raises(ArchiveRefused, match="should have 0000"):
        an_installer(data).install(package, sha256="0" * 64)
    with pytest.raises(PackageError, match="not a SHA-256"):
        an_installer(data).install(package, sha256="abc")
    with pytest.raises(NotAPlugin, match="folder, which has no digest"):
        an_installer(data).install(str(tmp_path / "source-1.0.0"), sha256="0" * 64)
    from host_service.packages.package import file_digest

    an_installer(data).install(package, sha256=file_digest(Path(package)).upper())


def test_source_that_is_nothing_is_told_of(data: Path) -> None:
    with pytest.raises(NotAPlugin, match="no file, folder or http address"):
        an_installer(data).install("/no/such.rmpkg")
    with pytest.raises(PackageError, match="no http or https address"):
        an_installer(data).install("file:///etc/passwd")
    with pytest.raises(PackageError, match="no http or https address"):
        an_installer(data).install("ftp://example.org/a.rmpkg")
