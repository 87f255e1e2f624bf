"""What can be tried without a key: knowledge with its sources, and tools that are called."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.commands import CommandLine, Ran
from tests.integration.host.host_process import HostProcess

ROOT = Path(__file__).parents[2]
_CALCULATOR = Path(__file__).with_name("calculator.py")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line on a host as a first start leaves it."""
    data = tmp_path_factory.mktemp("rehearsal") / "data"
    with HostProcess(data, echoes=False):
        yield CommandLine(data)


def _done(ran: Ran) -> Ran:
    assert ran.status == 0, ran.err
    return ran


def test_a_question_about_documents_is_answered_with_their_sources(host: CommandLine) -> None:
    _done(host("kb", "create", "docs"))
    _done(host("kb", "add", "docs", str(ROOT / "docs")))
    told = _done(host("chat", "what does the run token protect?"))
    assert "The passages that I was given say:" in told.out
    assert "token" in told.out.partition("say:")[2]
    # Each quote names its document, and the chat lists where the passages are.
    quoted = {line.partition("— ")[2].split()[0] for line in told.out.splitlines() if "> —" in line}
    assert quoted
    assert all((ROOT / "docs" / name).is_file() for name in quoted), quoted
    assert all(name in told.err for name in quoted), (quoted, told.err)


@pytest.mark.parametrize("text", ["please add 17 and 25", "把 17 和 25 两个数相加"])
def test_a_tool_that_is_asked_for_is_called_and_its_result_told(
    host: CommandLine, text: str
) -> None:
    _done(host("tools", "add", "calc", "--mcp-stdio", f"{sys.executable} {_CALCULATOR}"))
    told = _done(host("chat", text))
    assert 'calc__add {"a":17,"b":25}' in told.err
    assert "The tool calc__add gave: " in told.out
    assert "42" in told.out


def test_what_a_run_took_is_known_to_be_of_the_rehearsal_model(host: CommandLine) -> None:
    _done(host("chat", "hello"))
    (newest,) = host("runs", "list", "--limit", "1", "--json").json()
    (usage,) = newest["usage"]
    assert usage["model_id"] == "rehearsal"
    assert usage["input_tokens"] > 0
    assert usage["output_tokens"] > 0
    assert "rehearsal" in _done(host("runs", "explain", newest["run_id"])).out
