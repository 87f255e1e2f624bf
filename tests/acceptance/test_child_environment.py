"""A host that was given secrets in its environment: nothing that it starts can see any of them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from stores.secret_keys import new_secret_key
from tests.integration.host.calls import END, calling, say, scripted
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import SCRIPTED, write_shell_plugin
from tests.integration.host.processes import descendants, open_files

CANARY = "canary-7f3a"
# What an operator may have set for a host, and for programs beside it.
SECRETS = {
    "DATABASE_URL": f"postgresql://runmesh:{CANARY}@db/runmesh",
    "PGPASSWORD": CANARY,
    "OPENAI_API_KEY": CANARY,
    "ANTHROPIC_API_KEY": CANARY,
    "AWS_SECRET_ACCESS_KEY": CANARY,
    "GITHUB_TOKEN": CANARY,
    "RUNMESH_API_KEY": CANARY,
    "HTTPS_PROXY": f"http://user:{CANARY}@127.0.0.1:9",
    "DESK_TOKEN": CANARY,
}
GIVEN = {"PATH", "LANG", "TZ", "HOME", "TMPDIR", "RUNMESH_LISTEN", "RUNMESH_PLUGIN_ID",
         "RUNMESH_SUPERVISED"}  # fmt: skip
# What a shell adds of its own.
SHELLS_OWN = {"PWD", "OLDPWD", "SHLVL", "_"}
AGENTS = 'agents: [{id: default, runner_id: "plugin:acme/dump/default"}]\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secrets")


@pytest.fixture(scope="module")
def secret_key() -> str:
    return new_secret_key()


@pytest.fixture(scope="module")
def host(folder: Path, secret_key: str) -> Iterator[HostProcess]:
    """A host with secrets, and a plugin that writes down what it sees and asks for one of them."""
    script = f'env -0 > "{folder}/seen"; exec "{sys.executable}" "{SCRIPTED}"'
    manifest = write_shell_plugin(folder / "plugins", "acme/dump", script) / "manifest.yaml"
    asking = yaml.safe_load(manifest.read_text())
    asking["run"]["env"] = ["DESK_TOKEN"]
    manifest.write_text(yaml.safe_dump(asking))
    database = {"RUNMESH_DATABASE": f"sqlite:///{folder / CANARY}.db"}
    with HostProcess(
        folder / "data",
        plugins=folder / "plugins",
        config=AGENTS,
        environment={**SECRETS, **database, "RUNMESH_SECRET_KEY": secret_key},
    ) as host:
        yield host


async def test_plugin_sees_what_is_on_the_list_and_nothing_else(
    host: HostProcess, folder: Path
) -> None:
    async with calling(host.addresses["grpc"], host.key) as caller:
        assert (await caller.dispatch(scripted(say("it works"), END))).text == "it works"
    assert (folder / f"{CANARY}.db").exists()
    entries = (folder / "seen").read_text().split("\0")
    seen = dict(entry.split("=", 1) for entry in entries if entry)
    assert {name for name in seen if not name.startswith("LC_")} <= GIVEN | SHELLS_OWN
    assert not any(CANARY in value for value in seen.values())
    assert seen["RUNMESH_PLUGIN_ID"] == "acme/dump"


def test_no_process_of_the_host_has_a_secret_where_others_could_look(
    host: HostProcess, secret_key: str
) -> None:
    processes = descendants(host.pid)
    assert any("scripted.py" in process.command for process in processes)
    for process in processes:
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        for secret in (CANARY, secret_key, host.key):
            assert secret.encode() not in environment, process.command
            assert secret not in process.command
        # Nor has it a way to the database, by a descriptor that was left open.
        assert not [name for name in open_files(process.pid) if CANARY in name]


def test_what_a_plugin_asks_for_and_does_not_get_is_told_without_its_value(
    host: HostProcess, secret_key: str
) -> None:
    assert "acme/dump asks for DESK_TOKEN, which policy does not give" in host.log()
    for secret in (secret_key, host.key, f":{CANARY}@"):
        assert secret not in host.log()
