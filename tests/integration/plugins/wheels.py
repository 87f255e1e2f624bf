"""Tiny wheels, and a registry on loopback that has some."""

import base64
import contextlib
import hashlib
import http.server
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    files: Mapping[str, str] | None = None,
    requires: Sequence[str] = (),
    commands: Mapping[str, str] | None = None,
) -> Path:
    """Makes a wheel with a module that knows its version, or with the files that are given."""
    folder.mkdir(parents=True, exist_ok=True)
    information = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"]
    metadata += [f"Requires-Dist: {each}\n" for each in requires]
    content = dict(files or {f"{name}.py": f"VERSION = {version!r}\n"})
    content[f"{information}/METADATA"] = "".join(metadata)
    content[f"{information}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    if commands:
        lines = [f"{command} = {target}\n" for command, target in commands.items()]
        content[f"{information}/entry_points.txt"] = "[console_scripts]\n" + "".join(lines)
    rows = [f"{path},{_hash(text)},{len(text.encode())}\n" for path, text in content.items()]
    content[f"{information}/RECORD"] = "".join([*rows, f"{information}/RECORD,,\n"])
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
    return wheel


class LocalRegistry:
    """A registry of packages (the simple repository API) on loopback.

    Args:
        folder: The wheels that it has.
        address: Where it is.

    Attributes:
        asked: The paths that were asked for.
    """

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.address = address
        self.asked: list[str] = []

    def variables(self) -> dict[str, str]:
        """What makes pip and uv ask it, and nobody else."""
        index = f"{self.address}/simple/"
        return {"PIP_INDEX_URL": index, "UV_DEFAULT_INDEX": index}

    def page(self, path: str) -> bytes | None:
        """What it answers."""
        self.asked.append(path)
        parts = path.strip("/").split("/")
        if parts[0] == "files":
            wheel = self.folder / parts[1]
            return wheel.read_bytes() if wheel.is_file() else None
        wheels = sorted(self.folder.glob(f"{parts[-1].replace('-', '_')}-*.whl"))
        links = [f'<a href="/files/{wheel.name}">{wheel.name}</a>' for wheel in wheels]
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()


@contextlib.contextmanager
def local_registry(folder: Path) -> Iterator[LocalRegistry]:
    """Serves the wheels in a folder."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(self.do_HEAD())

        def do_HEAD(self) -> bytes:
            page = registry.page(self.path)
            is_file = self.path.startswith("/files/")
            self.send_response(200 if page is not None else 404)
            kind = "application/octet-stream" if is_file else "text/html"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(page or b"")))
            self.end_headers()
            return page or b""

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry = LocalRegistry(folder, f"http://127.0.0.1:{server.server_port}")
    serving = threading.Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    try:
        yield registry
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def _hash(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return f"sha256={digest.decode().rstrip('=')}"
