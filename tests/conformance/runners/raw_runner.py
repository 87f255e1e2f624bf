"""A runner without any SDK that keeps the contract, or breaks it in the one way it is told.

It echoes, calls its host once a run, has `interrupt`, and is slow when its configuration says so.
As a program it serves where `RUNMESH_LISTEN` says; its arguments are its fault and its options.
"""

# The contract names the methods, and what they are given.
# ruff: noqa: ARG002, N802

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
import unicodedata
import uuid
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from runmesh.v1 import (
    discovery_pb2,
    discovery_pb2_grpc,
    host_api_pb2,
    host_api_pb2_grpc,
    manifest_pb2,
    result_pb2,
    run_pb2,
    run_pb2_grpc,
    types_pb2,
)

PLUGIN_ID = "acme/raw"
_PIECE_CHARACTERS = 2_000
_MESSAGE_BYTES = 900_000
_BYTES = 16 * 1024 * 1024
_OPTIONS = (
    ("grpc.max_receive_message_length", _BYTES),
    ("grpc.max_send_message_length", _BYTES),
    ("grpc.so_reuseport", 0),
)

Context = grpc.aio.ServicerContext[Any, Any]


class _Stopped(Exception):
    """The run was interrupted, or its time is over."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class RawRunner(discovery_pb2_grpc.DiscoveryServiceServicer, run_pb2_grpc.RunServiceServicer):
    """Both services, for one fault.

    Args:
        fault: What it does wrong; empty: nothing.
        max_runs: How many runs it says that it takes.
        interrupt: Whether it has the capability.
        notes: Whether its manifest tells the kit what it is.
        calls_host: Whether each run calls its host.
    """

    def __init__(
        self,
        fault: str = "",
        *,
        max_runs: int = 0,
        interrupt: bool = True,
        notes: bool = True,
        calls_host: bool = True,
    ) -> None:
        self.fault = fault
        self.max_runs = max_runs
        self.interrupt = interrupt
        self.notes = notes
        self.calls_host = calls_host
        self.address = ""
        self._instance_id = "always" if fault == "same_instance_id" else uuid.uuid4().hex
        self._active: dict[str, asyncio.Event] = {}
        self._done: dict[str, asyncio.Event] = {}
        self._seen: set[str] = set()
        self._kept: run_pb2.HostAccess | None = None
        self._settings = ""
        self._listed = 0
        self._draining = False
        self._hoard = b""
        self._lost: set[asyncio.Task[None]] = set()
        self._server = grpc.aio.server(options=_OPTIONS)
        self._health = health.aio.HealthServicer()

    async def start(self, listen: str = "127.0.0.1:0") -> str:
        """Serves, and returns where."""
        discovery_pb2_grpc.add_DiscoveryServiceServicer_to_server(self, self._server)
        run_pb2_grpc.add_RunServiceServicer_to_server(self, self._server)
        if self.fault != "no_health":
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = ["runmesh.v1.DiscoveryService", "runmesh.v1.RunService", reflection.SERVICE_NAME]
        if self.fault == "reflection_forgets":
            names.pop(1)
        if self.fault != "no_reflection":
            reflection.enable_server_reflection(names, self._server)
        port = self._server.add_insecure_port(listen)
        self.address = listen if listen.startswith("unix:") else f"127.0.0.1:{port}"
        await self._server.start()
        serving = health_pb2.HealthCheckResponse.SERVING
        await self._health.set("", 0 if self.fault == "not_serving" else serving)
        return self.address

    async def stop(self) -> None:
        """Ends at once."""
        for task in self._lost:
            task.cancel()
        await self._server.stop(None)

    async def drain(self) -> None:
        """Takes no more runs, and ends when the last has ended or 1.5 s are over."""
        if self.fault == "serves_on_sigterm":
            await asyncio.sleep(60)
        if self.fault != "drops_runs":
            self._draining = True
            await self._health.enter_graceful_shutdown()
            ends = [each.wait() for each in self._done.values()]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*ends), 1.5)
        await self._server.stop(0.2)

    async def Handshake(
        self, request: discovery_pb2.HandshakeRequest, context: Context
    ) -> discovery_pb2.HandshakeResponse:
        """Says who it is."""
        if self.fault == "strict_handshake" and UnknownFieldSet(request):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "unknown field")
        version = "1" if "1" in request.protocol_versions else ""
        match self.fault:
            case "speaks_anything":
                version = "1"
            case "takes_first_version":
                version = request.protocol_versions[0] if request.protocol_versions else ""
            case "version_error" if not version:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no common version")
            case "new_instance_id":
                self._instance_id = uuid.uuid4().hex
            case "settings_change_it":
                self._settings = request.settings_json or self._settings
            case "settings_in_file" if request.settings_json:
                _write_settings(request.settings_json)
        return discovery_pb2.HandshakeResponse(
            protocol_version=version,
            plugin_id="acme/other" if self.fault == "other_plugin_id" else PLUGIN_ID,
            plugin_version="" if self.fault == "no_plugin_version" else "1.0.0",
            sdk_language="python",
            max_concurrent_runs=self.max_runs,
            instance_id=self._instance_id,
        )

    async def ListRunners(
        self, request: discovery_pb2.ListRunnersRequest, context: Context
    ) -> discovery_pb2.ListRunnersResponse:
        """Lists its one runner."""
        self._listed += 1
        listed = discovery_pb2.ListRunnersResponse()
        if self.fault == "lists_nothing":
            return listed
        manifest = listed.runners.add()
        manifest.CopyFrom(self._manifest())
        if self.fault == "serves_two":
            second = listed.runners.add()
            second.CopyFrom(manifest)
            second.name, second.id = "second", f"plugin:{PLUGIN_ID}/second"
        if self.fault == "lists_instances":
            listed.instances.add(plugin_id=PLUGIN_ID)
        return listed

    def _manifest(self) -> manifest_pb2.RunnerManifest:
        manifest = manifest_pb2.RunnerManifest(
            id=f"plugin:{PLUGIN_ID}/default",
            name="default",
            label=types_pb2.LocalizedText(text={"en_US": "Raw"}),
            protocol_version="1",
            version="1.0.0",
            capabilities=manifest_pb2.RunnerCapabilities(
                streaming=self.fault != "unsaid_deltas", interrupt=self.interrupt
            ),
        )
        if self.notes:
            manifest.metadata["conformance.echo"] = "true"
            manifest.metadata["conformance.slow_config_json"] = '{"seconds": 30}'
        match self.fault:
            case "invalid_manifest":
                manifest.name = "another"
            case "manifest_of_other_plugin":
                manifest.id = "plugin:acme/other/default"
            case "manifest_changes":
                manifest.metadata["listed"] = str(self._listed)
            case "settings_change_it" if self._settings:
                manifest.metadata["settings"] = str(len(self._settings))
        return manifest

    async def Run(
        self, request: run_pb2.RunRequest, context: Context
    ) -> AsyncIterator[run_pb2.RunResponse]:
        """Echoes, and does what its fault is."""
        await self._refuse(request, context)
        run_id = request.context.run_id
        stop, done = asyncio.Event(), asyncio.Event()
        self._active[run_id], self._done[run_id] = stop, done
        self._seen.add(run_id)
        try:
            if self.fault == "ignores_cancel":
                # It works on in a task of its own, which nobody cancels.
                task = asyncio.create_task(self._work_on(run_id, stop, request))
                self._lost.add(task)
                await asyncio.shield(task)
            sequence = 0
            async for result in self._results(request, stop):
                result.run_id, result.sequence = run_id, sequence + 1
                for response in self._spoil(result):
                    sequence += len(response.results)
                    yield response
        finally:
            if self.fault != "ignores_cancel" or stop.is_set():
                self._active.pop(run_id, None)
            done.set()

    async def _work_on(self, run_id: str, stop: asyncio.Event, request: run_pb2.RunRequest) -> None:
        seconds = json.loads(request.context.config_json or "{}").get("seconds", 0)
        await asyncio.sleep(seconds)
        self._active.pop(run_id, None)

    async def Interrupt(
        self, request: run_pb2.InterruptRequest, context: Context
    ) -> run_pb2.InterruptResponse:
        """Stops a run."""
        if not self.interrupt and self.fault != "unsaid_interrupt":
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no interrupt")
        if self.fault == "interrupt_fails":
            await context.abort(grpc.StatusCode.INTERNAL, "cannot")
        stop = self._active.get(request.run_id)
        if self.fault == "hangs_in_interrupt" and stop is not None:
            await asyncio.sleep(3600)
        if stop is None:
            return run_pb2.InterruptResponse(was_active=self.fault == "always_active")
        if self.fault == "denies_active":
            stop.set()
            return run_pb2.InterruptResponse(was_active=False)
        if self.fault != "interrupt_only_answers":
            stop.set()
            await self._done[request.run_id].wait()
        return run_pb2.InterruptResponse(was_active=True)

    async def _refuse(self, request: run_pb2.RunRequest, context: Context) -> None:
        """Refuses what it must, and what its fault makes it refuse."""
        run = request.context
        if request.runner_id != self._manifest().id and self.fault != "runs_anything":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such runner")
        if self._draining and self.fault != "takes_runs_draining":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "draining")
        limit = {"takes_too_many": 0, "takes_too_few": 1, "unsaid_limit": 4}.get(
            self.fault, self.max_runs
        )
        if 0 < limit <= len(self._active):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
        text = run.input.text
        refused = {
            "status_for_failure": True,
            "fails_on_astral": any(each > "\uffff" for each in text),
            "fails_on_unknown_fields": bool(UnknownFieldSet(run)),
            "fails_on_unknown_numbers": _has_unknown_number(run),
            "needs_an_actor": not run.HasField("actor"),
            "fails_on_large_numbers": any(
                each.artifact.size_bytes > 2**53 for each in run.input.parts
            ),
            "fails_on_replays": run.run_id in self._seen,
        }
        if refused.get(self.fault):
            await context.abort(grpc.StatusCode.INTERNAL, "something was not expected")
        if self.fault == "dies_on_empty" and not text:
            os._exit(70)
        if self.fault == "dies_on_large" and len(text) > 100_000:
            os._exit(71)
        if self.fault == "never_ends_without_text" and not run.input.HasField("text"):
            await asyncio.sleep(3600)

    async def _results(
        self, request: run_pb2.RunRequest, stop: asyncio.Event
    ) -> AsyncIterator[result_pb2.RunResult]:
        run = request.context
        allowed_seconds = None
        if request.HasField("timeout") and self.fault != "ignores_timeout":
            allowed_seconds = request.timeout.seconds + request.timeout.nanos / 1e9
        try:
            await self._unless_stopped(self._work(request), allowed_seconds, stop)
        except _Stopped as stopped:
            code = "acme.stopped" if self.fault == "interrupt_wrong_code" else stopped.code
            if self.fault != "interrupt_no_end":
                failed = result_pb2.RunFailed(code=code, message="stopped")
                yield result_pb2.RunResult(run_failed=failed)
            return
        text = self._answer(run.input.text)
        if self.fault == "floods_memory" and len(text) > 100_000:
            self._hoard = b"x" * (300 * 1024 * 1024)
        for start in range(0, len(text), _PIECE_CHARACTERS):
            piece = text[start : start + _PIECE_CHARACTERS]
            yield result_pb2.RunResult(message_delta=result_pb2.MessageDelta(text=piece))
        if text and len(text.encode()) <= _MESSAGE_BYTES:
            yield result_pb2.RunResult(message_completed=_message(text))
        if self.fault != "no_terminal":
            silent = not text and self.fault != "says_nothing"
            reason = "silent" if silent else "stop"
            yield result_pb2.RunResult(run_completed=result_pb2.RunCompleted(finish_reason=reason))

    async def _unless_stopped(
        self, work: Coroutine[Any, Any, None], allowed_seconds: float | None, stop: asyncio.Event
    ) -> None:
        """Does some work, unless the run is interrupted or its time is over."""
        task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait(
                {task, stopped}, timeout=allowed_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if stopped.done():
                raise _Stopped("cancelled")
            if not task.done():
                raise _Stopped("runner.timeout")
            task.result()
        finally:
            task.cancel()
            stopped.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)

    async def _work(self, request: run_pb2.RunRequest) -> None:
        if self.calls_host:
            await self._call_host(request.host_access)
        seconds = json.loads(request.context.config_json or "{}").get("seconds", 0)
        if seconds and self.fault == "ill_while_busy":
            await self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        if seconds and self.fault == "blocks":
            time.sleep(0.4)  # noqa: ASYNC251 - its fault
        await asyncio.sleep(seconds)

    def _answer(self, text: str) -> str:
        match self.fault:
            case "normalizes":
                return unicodedata.normalize("NFC", text)
            case "drops_mark":
                return text.removeprefix("\ufeff")
            case "strips":
                return text.strip()
            case "says_nothing":
                return ""
        return text

    async def _call_host(self, access: run_pb2.HostAccess) -> None:
        used = run_pb2.HostAccess()
        used.CopyFrom(access)
        self._kept = self._kept or used
        if self.fault == "keeps_tokens":
            used.run_token = self._kept.run_token
            used.instance_token = self._kept.instance_token
        if self.fault == "keeps_instance_token":
            used.instance_token = self._kept.instance_token
        if self.fault == "keeps_address":
            used.address = self._kept.address
        metadata = [
            ("authorization", f"Bearer {used.run_token}"),
            ("runmesh-instance", used.instance_token),
        ]
        if self.fault == "no_run_token":
            metadata.pop(0)
        if self.fault == "no_instance_token":
            metadata.pop(1)
        async with grpc.aio.insecure_channel(
            used.address, options=[("grpc.default_authority", "localhost")]
        ) as channel:
            stub = host_api_pb2_grpc.HostAPIServiceStub(channel)
            try:
                await stub.GetPrompt(host_api_pb2.GetPromptRequest(), metadata=metadata)
            except grpc.aio.AioRpcError:
                # What the host refuses is another matter.
                return

    def _spoil(self, result: result_pb2.RunResult) -> list[run_pb2.RunResponse]:
        """The frames that a result is sent in."""
        ends = result.HasField("run_completed") or result.HasField("run_failed")
        results = [result]
        if result.HasField("message_delta"):
            results = self._spoil_delta(result)
        elif ends:
            results = self._spoil_end(result)
        elif self.fault == "oversized_result" and result.HasField("message_completed"):
            result.message_completed.message.parts[0].text = "x" * (1024 * 1024 + 1)
        for each in results:
            self._spoil_numbers(each)
        frames = [run_pb2.RunResponse(results=results)]
        if self.fault == "empty_frame" and ends:
            frames.insert(0, run_pb2.RunResponse())
        return frames

    def _spoil_delta(self, result: result_pb2.RunResult) -> list[result_pb2.RunResult]:
        if self.fault == "oversized_frame" and result.sequence == 1:
            result.message_delta.text = "x" * 900_000
            return [_copy(result, number=at) for at in range(1, 5)]
        if self.fault == "zero_text":
            result.message_delta.text += "\0"
        if self.fault == "no_payload":
            result.ClearField("payload")
        return [result]

    def _spoil_end(self, result: result_pb2.RunResult) -> list[result_pb2.RunResult]:
        late = _copy(result, number=result.sequence + 1)
        if self.fault == "two_terminals":
            return [result, late]
        if self.fault == "after_terminal":
            late.message_delta.text = "late"
            return [result, late]
        return [result]

    def _spoil_numbers(self, result: result_pb2.RunResult) -> None:
        match self.fault:
            case "skips_sequence" if result.sequence > 1:
                result.sequence += 1
            case "starts_at_zero":
                result.sequence -= 1
            case "wrong_run_id":
                result.run_id = "another"
            case "first_sequence":
                result.first_sequence = result.sequence


def _write_settings(settings_json: str) -> None:
    Path(os.environ["HOME"], "settings.json").write_text(settings_json, "utf-8")


def _message(text: str) -> result_pb2.MessageCompleted:
    message = types_pb2.ChatMessage(role=types_pb2.CHAT_ROLE_ASSISTANT)
    message.parts.add().text = text
    return result_pb2.MessageCompleted(message=message)


def _copy(result: result_pb2.RunResult, *, number: int) -> result_pb2.RunResult:
    copy = result_pb2.RunResult()
    copy.CopyFrom(result)
    copy.sequence = number
    return copy


def _has_unknown_number(message: Message) -> bool:
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        values = value if field.is_repeated else (value,)
        if field.enum_type is not None:
            known = field.enum_type.values_by_number
            if any(each not in known for each in values):
                return True
        elif field.message_type is not None and any(map(_has_unknown_number, values)):
            return True
    return False


async def _serve(fault: str) -> None:
    runner = RawRunner(fault, max_runs=int(os.environ.get("MAX_RUNS", "0")))
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    if fault != "dies_at_sigterm":
        loop.add_signal_handler(signal.SIGTERM, ended.set)
    await runner.start(os.environ["RUNMESH_LISTEN"])
    await ended.wait()
    await runner.drain()
    if fault == "fails_at_end":
        sys.exit(3)


if __name__ == "__main__":
    if "does_not_listen" in sys.argv:
        sys.exit("there is no such thing")
    asyncio.run(_serve(sys.argv[1] if len(sys.argv) > 1 else ""))
