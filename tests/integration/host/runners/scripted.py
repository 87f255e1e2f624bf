# gRPC names the methods and their arguments.
# ruff: noqa: ARG002, N802
"""A runner without any SDK that does what the event says, faults of the contract included.

The event's `data_json` is a script, of which each part may be absent: `{"steps": [STEP ...],
"on_interrupt": [STEP ...], "note": PATH}`. A step is an object with one name:

    send: [RESULT ...]   one frame; a result is a RunResult in JSON. Its `runId` and `sequence` are
                         filled in where they are absent; `"unknown": true` adds a payload that no
                         version has. Beside it, `replace: [BASE64, BASE64, ...]` puts the second
                         in the place of the first in the frame's bytes, and so on
    raw: BASE64          one frame of these bytes, whatever they are; a number: of so many zeros
    flood: [M, N, BYTES] M messages, each of N deltas of so many bytes and then whole; a
                         fourth number: so many results go in one frame
    tell: NAME           a delta that says, as JSON, what the runner was given: `access`, `time`,
                         `metadata` (of the call, and of the event), `input`, `resources`
    sleep: SECONDS
    await: PATH          until there is such a file
    hang: true           for ever, and deaf to cancellation
    exit: CODE           ends the process
    status: NAME         ends the call with this gRPC status

Into the file at `note` it writes a line for each thing that happens to it: `called`, then `ended`,
`cancelled` or `interrupted`.
"""

import asyncio
import base64
import json
import os
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf import json_format
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from runmesh.v1 import (
    discovery_pb2,
    discovery_pb2_grpc,
    manifest_pb2,
    result_pb2,
    run_pb2,
    run_pb2_grpc,
    types_pb2,
)

PLUGIN_ID = os.environ["RUNMESH_PLUGIN_ID"]
# Field 1000, one varint: a payload that no version of RunResult has.
UNKNOWN_PAYLOAD = b"\xc0\x3e\x01"
POLL_SECONDS = 0.01

Script = dict[str, Any]
Context = grpc.aio.ServicerContext[Any, Any]


def manifest(name: str, *, interrupt: bool = False) -> manifest_pb2.RunnerManifest:
    return manifest_pb2.RunnerManifest(
        id=f"plugin:{PLUGIN_ID}/{name}",
        name=name,
        label=types_pb2.LocalizedText(text={"en_US": name}),
        protocol_version="1",
        version="1.0.0",
        capabilities=manifest_pb2.RunnerCapabilities(
            streaming=True, interrupt=interrupt, platform_api=True
        ),
        permissions=manifest_pb2.RunnerPermissions(platform_actions=["ticket.create"]),
    )


def filing() -> manifest_pb2.RunnerManifest:
    """The runner that takes files and may do everything with artifacts."""
    declared = manifest("filing")
    declared.capabilities.multimodal_input = True
    declared.permissions.artifacts[:] = [
        manifest_pb2.ARTIFACT_ACCESS_METADATA,
        manifest_pb2.ARTIFACT_ACCESS_READ,
        manifest_pb2.ARTIFACT_ACCESS_CREATE,
    ]
    return declared


def selecting() -> manifest_pb2.RunnerManifest:
    """The runner that is given whatever its configuration selects."""
    declared = manifest("selecting")
    declared.capabilities.tool_calling = True
    declared.capabilities.knowledge_retrieval = True
    permissions = declared.permissions
    permissions.models.append(manifest_pb2.MODEL_PERMISSION_INVOKE)
    permissions.tools.append(manifest_pb2.TOOL_PERMISSION_CALL)
    permissions.knowledge_bases.append(manifest_pb2.KNOWLEDGE_BASE_PERMISSION_LIST)
    permissions.files.append(manifest_pb2.FILE_SOURCE_CONFIG)
    for name, type_ in (
        ("model", "llm-model-selector"),
        ("tools", "tool-multi-selector"),
        ("bases", "knowledge-base-multi-selector"),
        ("manual", "file"),
    ):
        declared.config_schema.add(name=name, type=type_).label.text["en_US"] = name
    return declared


class Discovery(discovery_pb2_grpc.DiscoveryServiceServicer):
    def __init__(self) -> None:
        self._instance_id = uuid.uuid4().hex

    async def Handshake(
        self, request: discovery_pb2.HandshakeRequest, context: Context
    ) -> discovery_pb2.HandshakeResponse:
        return discovery_pb2.HandshakeResponse(
            protocol_version="1",
            plugin_id=PLUGIN_ID,
            plugin_version="1.0.0",
            instance_id=self._instance_id,
        )

    async def ListRunners(
        self, request: discovery_pb2.ListRunnersRequest, context: Context
    ) -> discovery_pb2.ListRunnersResponse:
        return discovery_pb2.ListRunnersResponse(
            runners=[manifest("default"), manifest("polite", interrupt=True), filing(), selecting()]
        )


class ScriptedRun:
    """One run of a script: its frames, and the next number of its results."""

    def __init__(self, request: run_pb2.RunRequest, context: Context) -> None:
        self.script: Script = json.loads(request.context.event.data_json or "{}")
        self.interrupted = asyncio.Event()
        self.ended = asyncio.Event()
        self._request = request
        self._context = context
        self._sequence = 0
        self._may_stop = True

    def note(self, word: str) -> None:
        if path := self.script.get("note"):
            with Path(path).open("a") as file:
                file.write(f"{word}\n")

    async def frames(self) -> AsyncIterator[Any]:
        self.note("called")
        try:
            async for frame in self._steps(self.script.get("steps", ())):
                if self.interrupted.is_set():
                    break
                yield frame
            if self.interrupted.is_set():
                self.note("interrupted")
                self._may_stop = False
                async for frame in self._steps(self.script.get("on_interrupt", ())):
                    yield frame
            self.note("ended")
        except (asyncio.CancelledError, GeneratorExit):
            self.note("cancelled")
            raise
        finally:
            self.ended.set()

    async def _steps(self, steps: list[Script]) -> AsyncIterator[Any]:
        for step in steps:
            (name, value), *more = step.items()
            match name:
                case "send":
                    frame = run_pb2.RunResponse(results=[self._result(each) for each in value])
                    yield _replaced(frame, *more)
                case "raw":
                    yield bytes(value) if isinstance(value, int) else base64.b64decode(value)
                case "flood":
                    for number in range(value[0]):
                        for frame in self._message(f"m{number}", *value[1:]):
                            yield frame
                case "tell":
                    text = json.dumps(self._told(value))
                    yield run_pb2.RunResponse(
                        results=[self._result({"messageDelta": {"text": text}})]
                    )
                case _:
                    await self._wait(name, value)

    def _message(
        self, id: str, count: int, size: int, together: int = 1
    ) -> Iterator[run_pb2.RunResponse]:
        text = "x" * size
        delta = result_pb2.RunResult()
        delta.message_delta.message_id, delta.message_delta.text = id, text
        whole = result_pb2.RunResult()
        whole.message_completed.message.message_id = id
        whole.message_completed.message.role = types_pb2.CHAT_ROLE_ASSISTANT
        whole.message_completed.message.parts.add(text=text * count)
        frame = run_pb2.RunResponse()
        for result in (*[delta] * count, whole):
            frame.results.append(result)
            self._number(frame.results[-1])
            if len(frame.results) >= together:
                yield frame
                frame = run_pb2.RunResponse()
        if frame.results:
            yield frame

    async def _wait(self, name: str, value: Any) -> None:
        match name:
            case "sleep":
                await self._unless_interrupted(asyncio.sleep(value))
            case "await":
                await self._unless_interrupted(_file(Path(value)))
            case "hang":
                await _hang()
            case "exit":
                # What was sent before must be on its way before the process is gone.
                await asyncio.sleep(0.05)
                os._exit(value)
            case "status":
                await self._context.abort(grpc.StatusCode[value], "the script says so")
            case _:
                raise ValueError(f"there is no step {name!r}")

    async def _unless_interrupted(self, waiting: Any) -> None:
        tasks = {asyncio.ensure_future(waiting)}
        if self._may_stop:
            tasks.add(asyncio.ensure_future(self.interrupted.wait()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def _result(self, given: Script) -> result_pb2.RunResult:
        unknown = given.pop("unknown", False)
        result = json_format.ParseDict(given, result_pb2.RunResult())
        self._number(result)
        if unknown:
            result.MergeFromString(UNKNOWN_PAYLOAD)
        return result

    def _number(self, result: result_pb2.RunResult) -> None:
        result.run_id = result.run_id or self._request.context.run_id
        result.sequence = result.sequence or self._sequence + 1
        self._sequence = max(self._sequence, result.sequence)

    def _told(self, what: str) -> Any:
        if what == "access":
            return json_format.MessageToDict(self._request.host_access)
        if what == "resources":
            return json_format.MessageToDict(self._request.context.resources)
        if what == "input":
            return json_format.MessageToDict(self._request.context.input)
        if what == "metadata":
            return {
                "call": [
                    [key, str(value)] for key, value in self._context.invocation_metadata() or ()
                ],
                "event": dict(self._request.context.metadata),
            }
        remaining: float | None = self._context.time_remaining()
        request = self._request
        return {
            "request": request.timeout.ToNanoseconds() / 1e9
            if request.HasField("timeout")
            else None,
            # gRPC has no word for a call without a deadline: it is centuries away then.
            "call": remaining if remaining is not None and remaining < 1e6 else None,
            "context": request.context.runtime.HasField("deadline"),
        }


def _replaced(frame: run_pb2.RunResponse, *more: tuple[str, list[str]]) -> Any:
    if not more:
        return frame
    ((_, texts),) = more
    data, pieces = frame.SerializeToString(), map(base64.b64decode, texts)
    for old, new in zip(pieces, pieces, strict=True):
        data = data.replace(old, new)
    return data


async def _file(path: Path) -> None:
    # Another process makes it, which sets no event of ours.
    while not path.exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(POLL_SECONDS)


async def _hang() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


class Runs(run_pb2_grpc.RunServiceServicer):
    def __init__(self) -> None:
        self._active: dict[str, ScriptedRun] = {}

    async def Run(self, request: run_pb2.RunRequest, context: Context) -> AsyncIterator[Any]:
        run_id = request.context.run_id
        run = self._active[run_id] = ScriptedRun(request, context)
        try:
            async for frame in run.frames():
                yield frame
        finally:
            del self._active[run_id]

    async def Interrupt(
        self, request: run_pb2.InterruptRequest, context: Context
    ) -> run_pb2.InterruptResponse:
        run = self._active.get(request.run_id)
        if run is not None:
            run.interrupted.set()
            await run.ended.wait()
        return run_pb2.InterruptResponse(was_active=run is not None)


def _encode(frame: Any) -> bytes:
    encoded: bytes = frame if isinstance(frame, bytes) else frame.SerializeToString()
    return encoded


def add_runs(servicer: Runs, server: grpc.aio.Server) -> None:
    """Registers the service with a serializer that lets any bytes pass."""
    handlers: dict[str, Any] = {
        "Run": grpc.unary_stream_rpc_method_handler(
            servicer.Run, run_pb2.RunRequest.FromString, _encode
        ),
        "Interrupt": grpc.unary_unary_rpc_method_handler(
            servicer.Interrupt, run_pb2.InterruptRequest.FromString, _encode
        ),
    }
    generic = grpc.method_handlers_generic_handler("runmesh.v1.RunService", handlers)
    server.add_generic_rpc_handlers((generic,))


async def serve() -> None:
    server = grpc.aio.server(
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_send_message_length", 64 * 1024 * 1024),
        ]
    )
    discovery_pb2_grpc.add_DiscoveryServiceServicer_to_server(Discovery(), server)
    add_runs(Runs(), server)
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    server.add_insecure_port(os.environ["RUNMESH_LISTEN"])
    await server.start()
    await checks.set("", health_pb2.HealthCheckResponse.SERVING)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    # Runs that hang are what this runner is for: nobody waits for them.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(serve())
