"""grpcurl: what people look into a gRPC server with; built once, from its pinned source."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.toolchains import require_tool, unavailable

_MODULE = "github.com/fullstorydev/grpcurl/cmd/grpcurl"
_VERSION = "v1.9.3"


@dataclass(frozen=True, slots=True)
class Grpcurl:
    """The program.

    Attributes:
        path: Where it is.
    """

    path: Path

    def __call__(
        self,
        address: str,
        *words: str,
        key: str = "",
        data: str | None = None,
        tls: Sequence[str] = ("-plaintext",),
    ) -> str:
        """Runs it; returns what it prints.

        Args:
            address: `HOST:PORT` or `unix:/path`.
            words: Its verb, or what to call.
            key: An API key to call with.
            data: A request in JSON.
            tls: Its options about TLS; by default there is none.
        """
        options = [*tls, "-max-time", "30"]
        if key:
            options += ["-H", f"authorization: Bearer {key}"]
        if data is not None:
            options += ["-d", data]
        ran = subprocess.run(
            [self.path, *options, address, *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=45,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def messages(self, address: str, method: str, **options: Any) -> Sequence[Any]:
        """Calls a method; returns the messages of the answer, read as JSON."""
        text = self(address, method, **options).strip()
        decoder, messages = json.JSONDecoder(), []
        while text:
            found, end = decoder.raw_decode(text)
            messages.append(found)
            text = text[end:].lstrip()
        return messages


def find_grpcurl() -> Grpcurl:
    """Returns the program, which is built on first use and kept in the environment's folder."""
    kept = Path(sys.prefix) / "tools" / f"grpcurl-{_VERSION}"
    if not kept.exists():
        _build(kept)
    return Grpcurl(kept)


def _build(kept: Path) -> None:
    go = require_tool("go")
    kept.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        built = subprocess.run(
            [go, "install", f"{_MODULE}@{_VERSION}"],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "GOBIN": folder},
        )
        if built.returncode != 0:
            unavailable(f"grpcurl could not be built: {built.stderr[-500:]}")
        # Whole or not at all, whoever else builds it.
        (Path(folder) / "grpcurl").rename(kept)
