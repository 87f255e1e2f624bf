"""A host as a process of its own, as `runmesh up` starts it."""

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.echo_agent import with_echo
from tests.integration.host.waiting import wait_until

# A host is up in a second; a machine that runs much else beside may take many times as long.
_START_SECONDS = 40.0
_STOP_SECONDS = 30.0


class HostProcess:
    """One host on one data folder, which may be started again and again.

    Args:
        data: The data folder.
        config: The text of a configuration file, if it has one.
        plugins: A folder of plugin folders, if it has one.
        arguments: More arguments of `runmesh up`.
        environment: Variables beside those of the tests.
        tls: What its HTTP listener is asked with; None: it has no TLS.
        echoes: Whether its agent `default` echoes; else it is that of any first start.
    """

    def __init__(
        self,
        data: Path,
        *,
        config: str = "",
        plugins: Path | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        echoes: bool = True,
    ) -> None:
        self.data = data
        self._tls = tls
        self._log_path = data.with_name(f"{data.name}.log")
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RUNMESH_", "OPENAI_"))
        } | dict(environment or {})
        self._arguments = ["--data", str(data), *arguments]
        for option, default in (("--grpc", "127.0.0.1:0"), ("--http", "127.0.0.1:0")):
            if option not in arguments:
                self._arguments += [option, default]
        if plugins is not None:
            self._arguments += ["--plugins", str(plugins)]
        if echoes:
            config = with_echo(config)
        if config:
            path = data.with_name(f"{data.name}.yaml")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(config)
            self._arguments += ["--config", str(path)]
        self._process: subprocess.Popen[bytes] | None = None
        self.addresses: dict[str, Any] = {}

    def start(self) -> Self:
        """Starts it, and returns when it would take an event."""
        self.launch()
        wait_until(lambda: self.is_announced() or self.has_ended, seconds=_START_SECONDS)
        assert not self.has_ended, f"the host did not start:\n{self.log()}"
        wait_until(self._is_ready, seconds=_START_SECONDS)
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def launch(self) -> None:
        """Starts it and does not wait."""
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "host_service", "up", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
            )

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether its process has ended."""
        return self._process is None or self._process.poll() is not None

    @property
    def key(self) -> str:
        """The operator's API key."""
        return (self.data / "operator.key").read_text().strip()

    @property
    def database_url(self) -> str:
        """Its database."""
        return f"sqlite:///{self.data / 'runmesh.db'}"

    def log(self) -> str:
        """What it wrote so far, in all its starts."""
        return self._log_path.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, seconds: float = _STOP_SECONDS) -> int:
        """Waits until it has ended, and returns its exit code."""
        assert self._process is not None
        return self._process.wait(seconds)

    def kill(self) -> None:
        """Ends it as a loss of power would."""
        self.signal(signal.SIGKILL)
        self.wait()

    def close(self) -> None:
        """Stops it if it runs, as the end of a test does."""
        deadline = time.monotonic() + _STOP_SECONDS
        while not self.has_ended:
            assert time.monotonic() < deadline, f"the host does not stop:\n{self.log()}"
            # The second one ends the grace of runs that a test left behind.
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(0.5)

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Asks its HTTP listener, and returns the status and the JSON of the answer."""
        scheme = "https" if self._tls else "http"
        place = self.addresses["http"].replace("0.0.0.0", "localhost")
        request = urllib.request.Request(f"{scheme}://{place}{path}")
        handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._tls)]
        opener = urllib.request.build_opener(*handlers, _AnyStatus)
        with opener.open(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())

    def is_announced(self) -> bool:
        """Whether it has said where it listens."""
        try:
            self.addresses = json.loads((self.data / "host.json").read_text())
        except FileNotFoundError:
            return False
        return bool(self.addresses["pid"] == self.pid)

    def _is_ready(self) -> bool:
        return self.get("/readyz")[0] == 200


class _AnyStatus(urllib.request.HTTPErrorProcessor):
    """Takes every status for an answer."""

    def http_response(self, request: Any, response: Any) -> Any:  # noqa: ARG002 - its signature
        """Returns the response as it is."""
        return response

    https_response = http_response
