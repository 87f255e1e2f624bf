"""`runmesh kb`: documents of a folder become what an agent answers from, and stay so."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.commands import RUNMESH, CommandLine, running, wait_for
from tests.unit.knowledge.pdfs import pdf_of

AGENTS = """\
agents:
  - {id: default, runner_id: "plugin:runmesh/local-agent/default"}
  - {id: echo, runner_id: "plugin:runmesh/echo/default"}
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """A host with the local agent, and one that echoes."""
    folder = tmp_path_factory.mktemp("kb")
    agents = folder / "agents.yaml"
    agents.write_text(AGENTS)
    with running(folder / "data", "--config", str(agents)) as command_line:
        yield command_line


@pytest.fixture
def base(host: CommandLine, request: pytest.FixtureRequest) -> Iterator[str]:
    """A knowledge base of the test's own."""
    name = request.node.name[:60].replace("_", "-")
    assert host("kb", "create", name, "--no-agent").status == 0
    yield name
    host("kb", "remove", name, "--yes")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with documents of each kind, and with what is none."""
    docs = tmp_path / "docs"
    (docs / "deep").mkdir(parents=True)
    (docs / ".git").mkdir()
    (docs / "guide.md").write_text("# Guide\n\nThe kettle is in the kitchen.\n")
    (docs / "deep" / "page.html").write_text("<h1>Garden</h1><p>The rake is in the shed.")
    (docs / "report.pdf").write_bytes(pdf_of(["Profits rose."]))
    (docs / "plain.txt").write_text("明天下午三点开项目评审会议")
    (docs / "picture.png").write_bytes(b"\x89PNG")
    (docs / ".git" / "config.txt").write_text("hidden")
    return docs


def documents(host: CommandLine, base: str) -> dict[str, Any]:
    return {each["document_id"]: each for each in host("kb", "list", base, "--json").json()}


def test_folder_is_added_found_replaced_and_removed(
    host: CommandLine, base: str, folder: Path
) -> None:
    added = host("kb", "add", base, str(folder), "--metadata", "site=north")
    assert added.status == 0, added.err
    assert added.out.splitlines()[-1] == "4 added (4 passages), 0 unchanged"
    assert "picture.png: skipped: files that end in .png are no documents" in added.err
    assert "hidden" not in added.err
    there = documents(host, base)
    assert list(there) == ["deep/page.html", "guide.md", "plain.txt", "report.pdf"]
    assert {each["status"] for each in there.values()} == {"DOCUMENT_STATUS_READY"}

    (hit,) = host("kb", "search", base, "kettle", "--json").json()
    assert (hit["document_id"], hit["text"]) == (
        "guide.md",
        "Guide\n\nThe kettle is in the kitchen.",
    )
    assert json.loads(hit["metadata_json"]) == {"heading": "Guide", "site": "north"}
    assert "plain.txt  at 0" in host("kb", "search", base, "评审").out
    assert "report.pdf  page 1, at 0" in host("kb", "search", base, "profits").out
    elsewhere = host("kb", "search", base, "profits", "--filter", "site=south")
    assert (elsewhere.out, elsewhere.err) == ("", "nothing was found\n")

    (folder / "guide.md").write_text("# Guide\n\nThe kettle is in the cellar.\n")
    again = host("kb", "add", base, str(folder), "--metadata", "site=north")
    assert again.out.splitlines()[-1] == "1 added (1 passage), 3 unchanged"
    assert "cellar" in host("kb", "search", base, "kettle").out

    assert host("kb", "remove", base, "guide.md", "--yes").status == 0
    assert "guide.md" not in documents(host, base)
    gone = host("kb", "remove", base, "guide.md", "--yes")
    assert (gone.status, gone.error_line()[:12]) == (1, "there is no ")


def test_documents_whose_files_are_gone_are_removed_with_sync_alone(
    host: CommandLine, base: str, folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("From elsewhere.")
    host("kb", "add", base, str(folder))
    host("kb", "add", base, str(other))
    (folder / "plain.txt").unlink()
    host("kb", "add", base, str(folder))
    assert "plain.txt" in documents(host, base)
    synced = host("kb", "add", base, str(folder), "--sync")
    assert "plain.txt: removed, its file is gone" in synced.out
    assert list(documents(host, base)) == ["deep/page.html", "guide.md", "other.txt", "report.pdf"]


def test_document_that_cannot_be_read_costs_itself_and_is_told(
    host: CommandLine, base: str, folder: Path
) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    added = host("kb", "add", base, str(folder))
    assert added.status == 1
    assert added.out.splitlines()[-1] == "4 added (4 passages), 0 unchanged, 1 failed"
    assert "broken.pdf: it is a PDF that cannot be read, damaged or not finished" in added.err
    assert documents(host, base)["broken.pdf"]["status"] == "DOCUMENT_STATUS_FAILED"
    assert "damaged" in host("kb", "list", base).out


def test_patterns_choose_files(host: CommandLine, base: str, folder: Path) -> None:
    added = host("kb", "add", base, f"{folder}/**/*.html")
    assert added.status == 0, added.err
    assert list(documents(host, base)) == ["deep/page.html"]
    none = host("kb", "add", base, f"{folder}/*.docx")
    assert none.error_line().startswith("nothing matches")
    assert host("kb", "add", base, "/no/such").error_line().startswith("there is no file or folder")


def test_base_goes_to_an_agent_by_what_its_runner_declares(host: CommandLine) -> None:
    chosen = host("kb", "create", "chosen")
    assert "agent default: may search it, by its config.knowledge_bases" in chosen.out
    policy = host("kb", "create", "policed", "--agent", "echo")
    assert "agent echo: may search it, by its resources.knowledge_bases" in policy.out
    assert "does not search knowledge bases" in policy.err
    agents = {each["id"]: each for each in host("agents", "list", "--json").json()}
    assert json.loads(agents["default"]["config_json"])["knowledge_bases"] == ["chosen"]
    assert agents["echo"]["resources"]["knowledge_bases"] == ["policed"]
    nobody = host("kb", "create", "lonely", "--agent", "nobody")
    assert nobody.status == 1
    assert "knowledge base lonely is created" in nobody.err
    for each in ("chosen", "policed", "lonely"):
        assert host("kb", "remove", each, "--yes").status == 0
    agents = {each["id"]: each for each in host("agents", "list", "--json").json()}
    assert json.loads(agents["default"]["config_json"])["knowledge_bases"] == []
    assert agents["echo"]["resources"]["knowledge_bases"] == []


def test_agent_answers_from_its_documents_and_names_them(host: CommandLine, folder: Path) -> None:
    host("kb", "create", "house")
    host("kb", "add", "house", str(folder))
    told = host("chat", "where is the kettle?")
    assert told.status == 0, told.err
    assert "guide.md in house" in told.out + told.err
    assert "kitchen" in told.out
    run_id = host("runs", "list", "--json").json()[0]["run_id"]
    explained = host("runs", "explain", run_id, "--json").json()
    (grant,) = [each for each in explained["rights"]["grants"] if each["kind"] == "knowledge_base"]
    assert (grant["name"], grant["granted"]) == ("house", True)
    assert grant["granted_by"] == "config.knowledge_bases"
    host("kb", "remove", "house", "--yes")


def test_errors_say_what_to_do(host: CommandLine, base: str, tmp_path: Path) -> None:
    assert "is there already" in host("kb", "create", base).error_line()
    assert "'runmesh kb list' shows" in host("kb", "add", "nope", str(tmp_path)).error_line()
    assert "give --yes" in host("kb", "remove", base).error_line()
    assert host("kb", "add", base).status == 2
    nowhere = CommandLine(tmp_path)("kb", "add", base, str(tmp_path))
    assert "no host is running" in nowhere.error_line()


@contextmanager
def embeddings(stop_after: int) -> Iterator[tuple[str, threading.Event, list[str]]]:
    """Serve vectors; after so many texts, answer nothing until the event is set.

    Yields:
        Its address, the event, and the texts that were asked for.
    """
    open_again, asked = threading.Event(), list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.extend(body["input"])
            if len(asked) > stop_after:
                open_again.wait()
            data = [{"index": i, "embedding": [1.0, float(i)]} for i in range(len(body["input"]))]
            answer = json.dumps({"data": data}).encode()
            # Who asked may be dead.
            with suppress(OSError):
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", open_again, asked
    finally:
        open_again.set()
        server.shutdown()
        thread.join()
        server.server_close()


def test_document_goes_on_where_it_was_when_the_host_was_killed(tmp_path: Path) -> None:
    document = tmp_path / "long.txt"
    document.write_text("\n\n".join(f"Passage {i} of a long document." for i in range(300)))
    with embeddings(stop_after=100) as (url, open_again, asked):
        config = tmp_path / "config.yaml"
        config.write_text(
            "models: [{id: vectors, kind: embedding, provider: openai, model_name: m, "
            f"base_url: '{url}'}}]\n"
            "knowledge_bases: [{id: docs, embedding_model: vectors, chunking: {characters: 40, "
            "overlap_characters: 0}}]\nlimits: {embedded_passages: 20, embedding_batch_texts: 20}\n"
        )
        data = tmp_path / "data"
        words = [
            str(RUNMESH),
            "up",
            "--data",
            str(data),
            "--grpc",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
        ]
        first = subprocess.Popen([*words, "--config", str(config)], stderr=subprocess.DEVNULL)
        starting = CommandLine(data)
        try:
            wait_for(lambda: starting.is_ready(first.pid))
            adding = subprocess.Popen(
                [RUNMESH, "kb", "add", "docs", document, "--data", data],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            wait_for(lambda: len(asked) > 100)
        finally:
            os.kill(first.pid, signal.SIGKILL)
            first.wait()
        assert adding.wait(45) == 1
        before = len(asked)
        open_again.set()
        with running(data, "--config", str(config)) as line:
            assert documents(line, "docs")["long.txt"]["is_searchable"] is False
            added = line("kb", "add", "docs", str(document))
            assert added.status == 0, added.err
            assert "1 added (300 passages)" in added.out
            (counted,) = line("kb", "list", "--json").json()
            assert (counted["passages"], counted["passages_with_vectors"]) == (300, 300)
            # What was stored was not asked for again; what was under way when it ended was.
            assert len(asked) - before <= 300 - 100 + 20
            assert line("kb", "add", "docs", str(document)).out.endswith(
                "0 passages), 1 unchanged\n"
            )


def test_terminal_gets_bars_and_a_pipe_lines(host: CommandLine, base: str, folder: Path) -> None:
    ran = host.process("kb", "add", base, str(folder))
    assert "deep/page.html: 1 passage" in ran.out.splitlines()
    assert "\x1b" not in ran.out + ran.err
    script = "import pty, sys; sys.exit(pty.spawn([sys.argv[1], 'kb', 'add', *sys.argv[2:]]) >> 8)"
    shown = subprocess.run(
        [sys.executable, "-c", script, str(RUNMESH), base, str(folder)],
        check=False,
        capture_output=True,
        timeout=45,
        env={**host.environment(), "TERM": "xterm"},
    )
    assert shown.returncode == 0
    assert b"guide.md: unchanged" in shown.stdout
    assert b"\x1b[" in shown.stdout
