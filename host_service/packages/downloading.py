"""Fetches packages over HTTP: bounded in size and redirections, and only from where it was told."""

import base64
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException, HTTPMessage, HTTPResponse
from ipaddress import ip_address
from pathlib import Path
from typing import IO, Any
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from host_service.limits import PackageLimits
from host_service.packages.errors import DownloadFailed
from host_service.packages.package import SUFFIX

#: Told how many bytes have come, and how many there are; None: nobody said.
Moved = Callable[[int, int | None], None]

_CHUNK_BYTES = 256 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILE_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._+-]{{0,200}}{re.escape(SUFFIX)}")
_SCHEMES = ("http", "https")


def is_url(source: str) -> bool:
    """Whether a source is an address and no path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", source) is not None


def expected_digest(source: str, given: str | None) -> str | None:
    """The SHA-256 that a package must have: what was given, or what stands behind `#sha256=`.

    Raises:
        DownloadFailed: It is not one, or there are two.
    """
    fragment = urlsplit(source).fragment if is_url(source) else ""
    behind = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None
    for value in (given, behind):
        if value is not None and not _SHA256.fullmatch(value.lower()):
            raise DownloadFailed(f"{value[:80]!r} is not a SHA-256 of 64 hexadecimal digits")
    if given and behind and given.lower() != behind.lower():
        raise DownloadFailed("--sha256 and the address name two digests")
    chosen = given or behind
    return chosen.lower() if chosen else None


def shown(url: str) -> str:
    """An address without what may be secret in it: user, password, query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def fetch(
    url: str,
    folder: Path,
    *,
    digest_known: bool,
    limits: PackageLimits,
    moved: Moved = lambda _done, _all: None,
) -> Path:
    """Fetches a package into a folder, and returns its file.

    Args:
        url: Where it is.
        folder: Where it shall be.
        digest_known: Whether its digest will be checked. Without, what comes over an open network
            without TLS could be anybody's.
        limits: How large it may be, how often it may be elsewhere, how long it may pause.
        moved: Is told as it comes.

    Raises:
        DownloadFailed: It cannot be had, or must not be.
        OSError: The folder cannot be written.
    """
    parts = _checked(url)
    if parts.scheme == "http" and not (digest_known or _is_loopback(parts)):
        raise DownloadFailed(
            f"{shown(url)} is without TLS, so anybody on the way could have changed the package",
            "use https, or name its digest with --sha256",
        )
    name = unquote(parts.path).rpartition("/")[2]
    target = folder / (name if _FILE_NAME.fullmatch(name) else "download")
    request = _request(parts)
    try:
        with _opener(limits).open(request, timeout=limits.download_seconds) as answer:
            _receive(answer, target, shown(url), limits, moved)
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadFailed(f"{shown(url)} answers {error.code} {error.reason}") from error
    except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadFailed(f"{shown(url)} cannot be fetched: {reason}") from error
    return target


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        if parts.scheme.lower() not in _SCHEMES or not parts.hostname:
            raise DownloadFailed(f"{shown(url)} is no http or https address")
        _ = parts.port
    except ValueError as error:
        raise DownloadFailed(f"the address is not one: {error}") from error
    return parts._replace(scheme=parts.scheme.lower())


def _request(parts: SplitResult) -> urllib.request.Request:
    user, separator, host = parts.netloc.rpartition("@")
    bare = parts._replace(netloc=host, fragment="")
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked
        urlunsplit(bare), headers={"Accept-Encoding": "identity"}
    )
    if separator:
        credentials = base64.b64encode(unquote(user).encode()).decode()
        # For the one who was asked, and nobody that they lead to.
        request.add_unredirected_header("Authorization", f"Basic {credentials}")
    return request


def _is_loopback(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _receive(
    answer: HTTPResponse, target: Path, told: str, limits: PackageLimits, moved: Moved
) -> None:
    length = answer.headers.get("Content-Length", "")
    expected = int(length) if length.isascii() and length.isdigit() else None
    if expected is not None and expected > limits.package_bytes:
        raise DownloadFailed(f"{told} has {expected} bytes; the limit is {limits.package_bytes}")
    done = 0
    with target.open("xb") as file:
        while chunk := answer.read(_CHUNK_BYTES):
            done += len(chunk)
            if done > limits.package_bytes:
                raise DownloadFailed(f"{told} has more than {limits.package_bytes} bytes")
            file.write(chunk)
            moved(done, expected)
    if expected is not None and done != expected:
        raise DownloadFailed(f"{told} ended after {done} of {expected} bytes", "try again")


def _opener(limits: PackageLimits) -> urllib.request.OpenerDirector:
    """Opens http and https, and nothing else: no files, no FTP, no data."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        _ProxiesForOthers(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _BoundedRedirects(limits.redirects),
    ):
        opener.add_handler(handler)
    return opener


class _ProxiesForOthers(urllib.request.ProxyHandler):
    """Uses the environment's proxies, but not for this machine itself."""

    def proxy_open(self, req: Any, proxy: str, type: str) -> Any:
        """Opens a request by a proxy; None: without."""
        if _is_loopback(urlsplit(req.full_url)):
            return None
        return super().proxy_open(req, proxy, type)


class _BoundedRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a few redirections, and none that leaves http, or TLS.

    Args:
        most: How many.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Returns what to ask for instead."""
        # What else the answer has would be read to its end, if it has one.
        fp.close()
        self._check(req, newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)

    def _check(self, req: urllib.request.Request, newurl: str) -> None:
        if not self._left:
            raise DownloadFailed(f"{shown(req.full_url)} leads on and on")
        self._left -= 1
        if _checked(newurl).scheme != "https" and req.type == "https":
            raise DownloadFailed(f"{shown(req.full_url)} leads to an address without TLS")
