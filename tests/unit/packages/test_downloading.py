"""Tests of `host_service.packages.downloading`, against a server of its own on this machine."""

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from host_service.limits import PackageLimits
from host_service.packages.downloading import expected_digest, fetch, is_url, shown
from host_service.packages.errors import ArchiveRefused, DownloadFailed
from host_service.packages.packing import PluginFolder, pack
from tests.unit.packages.folders import an_installer, write_plugin

LIMITS = replace(PackageLimits(), package_bytes=100_000, redirects=3, download_seconds=0.5)

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


class Site:
    """A server whose answers a test writes down, by path."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                site.answers[self.path.partition("?")[0]](self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        serve = self._server.serve_forever
        threading.Thread(target=serve, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


def sends(body: bytes, *, claims: int | None = None) -> Answer:
    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        if claims is not None:
            request.send_header("Content-Length", str(claims))
        request.end_headers()
        request.wfile.write(body)

    return answer


def leads_to(place: str, code: int = 302) -> Answer:
    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        request.send_header("Location", place)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


def fetched(url: str, folder: Path, *, digest_known: bool = False) -> Path:
    return fetch(url, folder, digest_known=digest_known, limits=LIMITS)


def test_package_comes_with_its_name_and_its_progress(site: Site, tmp_path: Path) -> None:
    site.answers["/a/weather-1.0.0.rmpkg"] = sends(b"x" * 90_000, claims=90_000)
    seen: list[tuple[int, int | None]] = []
    path = fetch(
        f"{site.url}/a/weather-1.0.0.rmpkg?token=secret#sha256=00",
        tmp_path,
        digest_known=True,
        limits=LIMITS,
        moved=lambda done, whole: seen.append((done, whole)),
    )
    assert path == tmp_path / "weather-1.0.0.rmpkg"
    assert path.stat().st_size == 90_000
    assert seen[-1] == (90_000, 90_000)
    assert site.asked == ["/a/weather-1.0.0.rmpkg?token=secret"]


def test_address_without_a_packages_name_gives_none(site: Site, tmp_path: Path) -> None:
    site.answers["/latest"] = leads_to("/%2e%2e%2fevil.rmpkg")
    site.answers["/%2e%2e%2fevil.rmpkg"] = sends(b"x", claims=1)
    assert fetched(f"{site.url}/latest", tmp_path) == tmp_path / "download"
    (tmp_path / "download").unlink()
    assert fetched(f"{site.url}/%2e%2e%2fevil.rmpkg", tmp_path).parent == tmp_path


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_few_redirections_are_followed(code: int, site: Site, tmp_path: Path) -> None:
    site.answers |= {"/1": leads_to("/2", code), "/2": leads_to(f"{site.url}/3", code)}
    site.answers["/3"] = sends(b"x", claims=1)
    assert fetched(f"{site.url}/1", tmp_path).read_bytes() == b"x"


def test_redirections_without_end_are_not(site: Site, tmp_path: Path) -> None:
    for number in range(9):
        site.answers[f"/{number}"] = leads_to(f"/{number + 1}")
    with pytest.raises(DownloadFailed, match="/3 leads on and on"):
        fetched(f"{site.url}/0", tmp_path)
    assert len(site.asked) == 4
    site.answers["/loop"] = leads_to("/loop")
    with pytest.raises(DownloadFailed, match="leads on and on"):
        fetched(f"{site.url}/loop", tmp_path)


def test_what_comes_with_a_redirection_is_not_read(site: Site, tmp_path: Path) -> None:
    sent = 0

    def endless(request: http.server.BaseHTTPRequestHandler) -> None:
        nonlocal sent
        request.send_response(302)
        request.send_header("Location", "/b")
        request.end_headers()
        with contextlib.suppress(OSError):
            while sent < 200_000_000:
                sent += request.wfile.write(b"x" * 1_000_000)

    site.answers |= {"/a": endless, "/b": sends(b"x", claims=1)}
    assert fetched(f"{site.url}/a", tmp_path).read_bytes() == b"x"
    assert sent < 100_000_000


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://127.0.0.1/a", "//", "http://"])
def test_redirection_to_what_is_no_http_is_refused(place: str, site: Site, tmp_path: Path) -> None:
    site.answers["/1"] = leads_to(place)
    with pytest.raises(DownloadFailed):
        fetched(f"{site.url}/1", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("claims", [None, 200_000])
def test_what_is_too_large_is_refused(claims: int | None, site: Site, tmp_path: Path) -> None:
    site.answers["/a"] = sends(b"x" * 200_000, claims=claims)
    with pytest.raises(DownloadFailed, match="100000"):
        fetched(f"{site.url}/a", tmp_path)


def test_download_that_ends_early_is_told_of(site: Site, tmp_path: Path) -> None:
    site.answers["/a"] = sends(b"x" * 10, claims=20)
    with pytest.raises(DownloadFailed, match="10 of 20 bytes"):
        fetched(f"{site.url}/a", tmp_path)


def test_server_that_falls_silent_is_not_waited_for(site: Site, tmp_path: Path) -> None:
    silence = threading.Event()

    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        sends(b"x", claims=20)(request)
        request.wfile.flush()
        silence.wait(10)

    site.answers["/a"] = answer
    with pytest.raises(DownloadFailed, match="timed out"):
        fetched(f"{site.url}/a", tmp_path)
    silence.set()


def test_refusals_of_a_server_are_told_without_what_is_secret(site: Site, tmp_path: Path) -> None:
    site.answers["/a"] = lambda request: request.send_error(403)
    address = site.url.replace("//", "//ada:secret@")
    with pytest.raises(DownloadFailed, match="/a answers 403 Forbidden") as caught:
        fetched(f"{address}/a?token=secret", tmp_path)
    assert "secret" not in str(caught.value)


def test_password_is_for_the_one_who_was_asked_and_nobody_else(site: Site, tmp_path: Path) -> None:
    shown_to: dict[str, str | None] = {}

    def noting(answer: Answer) -> Answer:
        def note(request: http.server.BaseHTTPRequestHandler) -> None:
            shown_to[request.path] = request.headers.get("Authorization")
            answer(request)

        return note

    site.answers["/a"] = noting(leads_to("/b"))
    site.answers["/b"] = noting(sends(b"x", claims=1))
    address = site.url.replace("//", "//ada:s%40cret@")
    assert fetched(f"{address}/a", tmp_path).read_bytes() == b"x"
    assert shown_to == {"/a": "Basic YWRhOnNAY3JldA==", "/b": None}


def test_nobody_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DownloadFailed, match=r"cannot be fetched: .*refused"):
        fetched("http://127.0.0.1:9/a", tmp_path)


def test_open_network_without_tls_needs_a_digest(tmp_path: Path) -> None:
    with pytest.raises(DownloadFailed, match="is without TLS"):
        fetched("http://192.0.2.1/a.rmpkg", tmp_path)


@pytest.mark.parametrize(
    "url", ["file:///a", "ftp://h/a", "data://x", "http:///a", "http://h:port/a", "http://[::1/a"]
)
def test_other_addresses_are_none(url: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadFailed):
        fetched(url, tmp_path, digest_known=True)


def test_paths_are_no_addresses() -> None:
    assert is_url("HTTPS://example.org/a")
    assert not is_url("C:/a")
    assert not is_url("a/http://b")
    assert shown("https://ada:pw@example.org:8443/a?b=c#d") == "https://example.org:8443/a"


def test_digest_is_given_once() -> None:
    digest = "ab" * 32
    assert expected_digest(f"https://h/a#sha256={digest.upper()}", None) == digest
    assert expected_digest(f"https://h/a#sha256={digest}", digest) == digest
    assert expected_digest(f"a#sha256={digest}", None) is None
    assert expected_digest("https://h/a#part", None) is None
    with pytest.raises(DownloadFailed, match="two digests"):
        expected_digest(f"https://h/a#sha256={digest}", "cd" * 32)
    with pytest.raises(DownloadFailed, match="not a SHA-256"):
        expected_digest("https://h/a#sha256=12", None)


def test_package_is_installed_from_an_address_and_its_digest_counts(
    site: Site, tmp_path: Path
) -> None:
    package = pack(PluginFolder.read(write_plugin(tmp_path / "weather")), tmp_path)
    content = package.path.read_bytes()
    site.answers["/weather-1.0.0.rmpkg"] = sends(content, claims=len(content))
    url = f"{site.url}/weather-1.0.0.rmpkg?token=secret"
    data = tmp_path / "data"
    with pytest.raises(ArchiveRefused, match="should have 0000"):
        an_installer(data).install(f"{url}#sha256={'0' * 64}")
    an_installer(data).install(f"{url}#sha256={package.sha256}")
    [installed] = an_installer(data).folders.all()
    assert installed.record is not None
    assert installed.record.source == f"{site.url}/weather-1.0.0.rmpkg"
