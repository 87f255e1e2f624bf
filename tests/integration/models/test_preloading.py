"""What models are called with is loaded behind the start, where there is a model to be called."""

import time
from pathlib import Path

import pytest

from tests.integration.host.host_process import HostProcess

CONFIG = """\
models:
- id: real
  kind: MODEL_KIND_CHAT
  provider: openai
  model_name: real
  base_url: http://127.0.0.1:9/v1
"""
_PATIENCE_SECONDS = 120.0


def telling(tmp_path: Path, config: str) -> HostProcess:
    """Returns a host that writes each module that it imports into its log."""
    environment = {"PYTHONPROFILEIMPORTTIME": "1"}
    return HostProcess(tmp_path / "data", config=config, environment=environment)


def has_client(host: HostProcess) -> bool:
    return any(line.endswith("| openai") for line in host.log().splitlines())


@pytest.mark.timeout(300)
def test_client_is_loaded_ahead_of_the_first_call(tmp_path: Path) -> None:
    with telling(tmp_path, CONFIG) as host:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not has_client(host):
            assert time.monotonic() < deadline, "nothing was loaded"
            time.sleep(0.05)


@pytest.mark.timeout(300)
def test_host_without_a_model_for_people_loads_none(tmp_path: Path) -> None:
    with telling(tmp_path, f"{CONFIG}  enabled: false\n") as host:
        # By then it would long have begun.
        time.sleep(3.0)
        assert not has_client(host)
        assert "host_service.server" in host.log()
