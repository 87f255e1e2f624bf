"""Nothing that runs beside gRPC forks through its event loop."""

from pathlib import Path

_HOST = Path(__file__).parents[2] / "host_service"
# Builders of environments run in processes of the command line, on Python's own event loop, which
# uses vfork.
_APART = _HOST / "environments"


def test_processes_of_a_host_are_not_started_by_its_event_loop() -> None:
    # uvloop forks, and the handlers of gRPC that then run in the child have ended it.
    sources = [path for path in _HOST.rglob("*.py") if not path.is_relative_to(_APART)]
    assert len(sources) > 100
    for path in sources:
        text = path.read_text("utf-8")
        assert "create_subprocess" not in text, path
        assert "subprocess_exec" not in text, path
        assert "os.fork(" not in text or path.name == "guardian.py", path
