"""Makes the checks, one after the other, and tells what each found."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from host_service.conformance.attach_bridge import AttachBridge
from host_service.conformance.check import Check, Reach
from host_service.conformance.checks import CHECKS
from host_service.conformance.checks.process import START
from host_service.conformance.findings import Failed, Skipped
from host_service.conformance.options import Options
from host_service.conformance.report import Outcome, Report, Verdict
from host_service.conformance.runner_process import RunnerProcess
from host_service.conformance.session import Session, Unreachable
from host_service.supervisor import SocketFolder
from host_service.supervisor.errors import PluginFailed
from host_service.supervisor.interpreter import FindInterpreter, hosts_interpreter

Listener = Callable[[Outcome], None]


async def check_address(
    address: str, options: Options | None = None, on_outcome: Listener = lambda _: None
) -> Report:
    """Checks the runner at an address.

    Args:
        address: As gRPC names it, `unix:/path` or `host:port`.
        options: How to check.
        on_outcome: Told of each outcome when it is there.

    Raises:
        Unreachable: Nobody listens there.
    """
    session = Session(address=address, options=options or Options())
    return await _Examination(session, address, on_outcome).make()


async def check_plugin(
    folder: Path,
    options: Options | None = None,
    on_outcome: Listener = lambda _: None,
    *,
    find_interpreter: FindInterpreter = hosts_interpreter,
) -> Report:
    """Starts the plugin in a folder as a host does, checks it, and ends it.

    Args:
        folder: The plugin's folder.
        options: How to check.
        on_outcome: Told of each outcome when it is there.
        find_interpreter: Which Python it runs in; by default the host's own.

    Raises:
        ManifestInvalid: The folder's manifest breaks rules.
        SocketPathTooLong: There is no folder for a socket.
    """
    process = RunnerProcess(folder, find_interpreter)
    session = Session(process=process, options=options or Options())
    return await _Examination(session, str(folder), on_outcome).make()


async def check_attached(
    listen: str,
    options: Options | None = None,
    on_outcome: Listener = lambda _: None,
    *,
    on_listening: Callable[[Mapping[str, str]], None],
) -> Report:
    """Waits for a runner to attach, and checks it.

    Args:
        listen: Where runners may attach, `unix:/path` or `127.0.0.1:0`.
        options: How to check.
        on_outcome: Told of each outcome when it is there.
        on_listening: Told the variables that a runner's process needs to attach.

    Raises:
        Unreachable: None attached.
        SocketPathTooLong: There is no folder for a socket.
    """
    with SocketFolder.create() as sockets:
        bridge = AttachBridge(f"unix:{sockets.new_path()}")
        await bridge.start(listen)
        on_listening(bridge.environment)
        session = Session(bridge=bridge, options=options or Options())
        return await _Examination(session, bridge.attach_address, on_outcome).make()


async def check_attached_plugin(
    folder: Path,
    options: Options | None = None,
    on_outcome: Listener = lambda _: None,
    *,
    find_interpreter: FindInterpreter = hosts_interpreter,
) -> Report:
    """Starts the plugin in a folder so that it attaches, checks it, and ends it.

    Args and errors are those of `check_plugin`.
    """
    with SocketFolder.create() as sockets:
        bridge = AttachBridge(f"unix:{sockets.new_path()}")
        await bridge.start()
        process = RunnerProcess(folder, find_interpreter, bridge)
        session = Session(process=process, bridge=bridge, options=options or Options())
        return await _Examination(session, str(folder), on_outcome).make()


class _Examination:
    """One pass over the checks."""

    def __init__(self, session: Session, target: str, on_outcome: Listener) -> None:
        self._session = session
        self._target = target
        self._on_outcome = on_outcome
        self._outcomes: list[Outcome] = []
        self._lost = ""
        self._output = ""

    async def make(self) -> Report:
        begun = time.monotonic()
        wanted = [check for check in CHECKS if self._session.options.wants(check.name)]
        try:
            if await self._start():
                for check in wanted:
                    if check is not START or self._session.process is None:
                        await self._make(check)
            runner_id, sdk = _identity(self._session)
        finally:
            await self._session.close()
        return Report(
            target=self._target,
            runner_id=runner_id,
            sdk=sdk,
            outcomes=tuple(self._outcomes),
            seconds=time.monotonic() - begun,
            output=self._output,
            others=tuple(
                sorted(each.id for each in self._session.manifests if each.id != runner_id)
            ),
        )

    async def _start(self) -> bool:
        """Connects; where the kit starts the process, that is a check of its own."""
        begun = time.monotonic()
        if self._session.process is None:
            await self._session.open()
            return True
        try:
            await self._session.open()
        except (PluginFailed, Unreachable) as error:
            failed = Failed(
                expected="a process that serves gRPC where RUNMESH_LISTEN says",
                got=str(error),
                advice="start it by hand, RUNMESH_LISTEN=unix:/tmp/x.sock, and read what it says",
            )
            self._tell(_failed(START, failed, begun))
            return False
        self._tell(_ok(START, "", begun))
        return True

    async def _make(self, check: Check) -> None:
        begun = time.monotonic()
        if self._lost:
            self._tell(_skipped(check, f"the runner is gone since {self._lost}", begun))
            return
        if check.needs_process and self._session.process is None:
            self._tell(_skipped(check, "the kit did not start the process: --plugin", begun))
            return
        if check.reach is Reach.ATTACHED and self._session.bridge is None:
            self._tell(_skipped(check, "the runner is not attached: --attach", begun))
            return
        if check.reach is Reach.DIALLED and self._session.bridge is not None:
            self._tell(_skipped(check, "an attached runner is not called so", begun))
            return
        self._tell(await self._look(check, begun))

    async def _look(self, check: Check, begun: float) -> Outcome:
        try:
            remark = await check.run(self._session)
            outcome = _ok(check, remark, begun)
        except Skipped as reason:
            outcome = _skipped(check, str(reason), begun)
        except Failed as failed:
            outcome = _failed(check, failed, begun)
        except (PluginFailed, Unreachable) as error:
            outcome = _failed(check, _gone(str(error)), begun)
        if outcome.verdict is Verdict.FAILED:
            self._keep_output()
        if not await self._session.is_reachable():
            if outcome.verdict is not Verdict.FAILED:
                self._keep_output()
                outcome = _failed(check, _gone("the connection was lost"), begun)
            await self._bring_back(check)
        return outcome

    async def _bring_back(self, check: Check) -> None:
        try:
            await self._session.restart()
        except (PluginFailed, Unreachable):
            self._lost = check.name

    def _keep_output(self) -> None:
        if self._session.process is not None:
            self._output = self._session.process.output or self._output

    def _tell(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self._on_outcome(outcome)


def _identity(session: Session) -> tuple[str, str]:
    introduction = session.introduction
    sdk = ""
    if introduction is not None:
        parts = (introduction.sdk_name, introduction.sdk_language, introduction.sdk_version)
        sdk = " ".join(part for part in parts if part)
    try:
        return session.manifest.id, sdk
    except Skipped:
        return "", sdk


def _gone(problem: str) -> Failed:
    return Failed(
        expected="a process that is still there after the check",
        got=problem,
        advice="no input may end the process: see what it wrote, and catch what this check makes "
        "of it",
    )


def _ok(check: Check, remark: str, begun: float) -> Outcome:
    return Outcome(
        check.name, check.asks, check.source, Verdict.OK, time.monotonic() - begun, remark
    )


def _skipped(check: Check, reason: str, begun: float) -> Outcome:
    return Outcome(
        check.name, check.asks, check.source, Verdict.SKIPPED, time.monotonic() - begun, reason
    )


def _failed(check: Check, failed: Failed, begun: float) -> Outcome:
    return Outcome(
        check.name,
        check.asks,
        check.source,
        Verdict.FAILED,
        time.monotonic() - begun,
        expected=failed.expected,
        got=failed.got,
        advice=failed.advice,
    )
