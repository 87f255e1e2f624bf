"""Which installer is chosen, and what of the host it gets to see."""

from pathlib import Path

import pytest

from host_service.environments import BuildFailed
from host_service.environments.installers import Pip, Uv, choose_installer


def test_installers_see_nothing_of_the_host_but_how_to_reach_a_registry(tmp_path: Path) -> None:
    given = {
        "PATH": "/bin",
        "HOME": "/home/op",
        "LC_ALL": "C",
        "https_proxy": "http://127.0.0.1:3128",
        "PIP_INDEX_URL": "http://127.0.0.1:1/simple",
        "UV_DEFAULT_INDEX": "http://127.0.0.1:1/simple",
    }
    kept_back = {
        "RUNMESH_API_KEY": "secret",
        "RUNMESH_SECRET_KEY": "secret",
        "OPENAI_API_KEY": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "PYTHONPATH": "/elsewhere",
        "PIP_TARGET": "/elsewhere",
        "UV_CACHE_DIR": "/elsewhere",
        "LD_PRELOAD": "/elsewhere.so",
    }
    for chosen in ("pip", "uv"):
        host = {**given, **kept_back, "RUNMESH_INSTALLER": chosen}
        installer = choose_installer(tmp_path, host)
        assert isinstance(installer, Uv | Pip)
        assert installer.name == chosen
        assert installer.environment == given


def test_uv_is_taken_when_it_is_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "nothing-beside" / "python"))
    assert isinstance(choose_installer(tmp_path, {"PATH": str(tmp_path)}), Pip)
    (tmp_path / "uv").write_text("#!/bin/sh\n")
    (tmp_path / "uv").chmod(0o755)
    installer = choose_installer(tmp_path, {"PATH": str(tmp_path)})
    assert isinstance(installer, Uv)
    assert installer.program == str(tmp_path / "uv")


def test_installer_that_is_asked_for_and_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "nothing-beside" / "python"))
    with pytest.raises(BuildFailed, match="uv, which is not there"):
        choose_installer(tmp_path, {"PATH": str(tmp_path), "RUNMESH_INSTALLER": "uv"})
