"""Tests of `host_service.interceptors` and `status`: who may call, and what errors say.

All of it through a real server, as a client sees it.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from opentelemetry.trace import format_trace_id, get_current_span
from runmesh.admin.v1 import admin_pb2, admin_pb2_grpc
from runmesh.v1 import (
    attach_pb2_grpc,
    discovery_pb2,
    discovery_pb2_grpc,
    errors_pb2,
    event_pb2,
    gateway_pb2,
    gateway_pb2_grpc,
    host_api_pb2,
    host_api_pb2_grpc,
    types_pb2,
)

from host_service import errors
from host_service.actions.desk import ActionDesk
from host_service.actions.executors import ActionExecutors
from host_service.attach import AttachServicer
from host_service.authorization.attach_tokens import AttachGrants
from host_service.authorization.callers import CallerDirectory, Role
from host_service.authorization.secrets import hash_secret
from host_service.authorization.tokens import RunTokens
from host_service.capabilities.gate import Gate
from host_service.capabilities.offered import Capabilities, offer
from host_service.capabilities.transcript_pages import TranscriptPages
from host_service.capabilities.uploads import Uploads
from host_service.capabilities.whole_texts import WholeTexts
from host_service.catalogue.shelf import Shelf
from host_service.errors import FieldFault, HostError, InvalidArgument, NoBinding
from host_service.grpc_serving import register_attach
from host_service.host_api import HostAPIServicer
from host_service.interceptors import (
    ROLES,
    Authentication,
    EdgeInterceptor,
    current_access,
    current_caller,
    refuse_missing,
)
from host_service.knowledge.retrieval import Retrieval
from host_service.knowledge.vectors import Embedding
from host_service.limits import Limits
from host_service.logs import LineFormatter
from host_service.models.calls import ModelCalls
from host_service.models.endpoints import CatalogueEndpoints
from host_service.pages import PageTokens
from host_service.registry.attachments import Attachments
from host_service.registry.channel import SERVER_OPTIONS, open_channel
from host_service.registry.records import HostIdentity
from host_service.registry.registry import Registry
from host_service.requests import RequestCheck
from host_service.status import CODES
from host_service.telemetry import Telemetry
from host_service.tools.servers import ToolServers
from host_service.validation import Validator
from stores import Stores
from stores.audit import AuditOutcome, AuditQuery
from stores.records import ApiKeyRecord
from tests.unit.authorization.test_tokens import INSTANCE, rights

PROTO = Path(__file__).parents[2] / "proto" / "runmesh"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEYS = {role: f"rmk_canary-of-the-{role}" for role in Role}
LIMITED = "rmk_canary-of-a-limited-key"
SECRET_TEXT = "canary: what somebody said"

Serve = Callable[[Any, Any], Awaitable[Any]]


@refuse_missing
class Gateway(gateway_pb2_grpc.GatewayServiceServicer):
    """Does what a test says."""

    serve: Serve

    async def GetRun(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        return await self.serve(request, context)


@refuse_missing
class Admin(admin_pb2_grpc.AdminServiceServicer):
    """Is there to be called."""


@refuse_missing
class Discovery(discovery_pb2_grpc.DiscoveryServiceServicer):
    """Is there to be called."""


class Edge:
    """A server behind the interceptor, and calls to it."""

    def __init__(self, channel: grpc.aio.Channel, tokens: RunTokens) -> None:
        self.channel, self.tokens = channel, tokens
        self.gateway = Gateway()
        self.interceptor: EdgeInterceptor

    async def get_run(
        self, secret: str = KEYS[Role.OPERATOR], *metadata: tuple[str, str | bytes]
    ) -> gateway_pb2.GetRunResponse:
        stub = gateway_pb2_grpc.GatewayServiceStub(self.channel)
        call: Any = stub.GetRun
        request = gateway_pb2.GetRunRequest(run_id="run-1")
        response: gateway_pb2.GetRunResponse = await call(
            request, metadata=(("authorization", f"Bearer {secret}"), *metadata)
        )
        return response

    async def fails_with(self, error: Exception) -> "Refusal":
        async def serve(_request: Any, _context: Any) -> Any:
            raise error

        self.gateway.serve = serve
        return await refusal(self.get_run())

    async def call(self, method: str, secret: str | None) -> "Refusal | None":
        """Call any method with an empty request; return its refusal."""
        metadata = [] if secret is None else [("authorization", f"Bearer {secret}")]
        call: Any = self.channel.unary_unary(method)
        try:
            await call(b"", metadata=grpc.aio.Metadata(*metadata))
        except grpc.aio.AioRpcError as error:
            return Refusal(error)
        return None


class Refusal:
    """A status as a client reads it."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self.code, self.message = error.code(), error.details() or ""
        self._details: list[Any] = []
        for key, value in error.trailing_metadata():
            if key == "grpc-status-details-bin" and isinstance(value, bytes):
                self.status = status_pb2.Status.FromString(value)
                self._details = list(self.status.details)

    def detail(self, kind: type[Message]) -> Any:
        for each in self._details:
            if each.Is(kind.DESCRIPTOR):
                found = kind()
                each.Unpack(found)
                return found
        return None

    @property
    def info(self) -> error_details_pb2.ErrorInfo:
        return self.detail(error_details_pb2.ErrorInfo)

    @property
    def reason(self) -> str:
        return str(self.info.reason) if self._details else ""


async def refusal(call: Awaitable[Any]) -> Refusal:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return Refusal(raised.value)


def everything(stores: Stores) -> Capabilities:
    limits = Limits()
    telemetry = Telemetry(service_version="1.2", host_id="host")
    models = ModelCalls(
        shelf=Shelf,
        endpoints=CatalogueEndpoints(secrets=stores.secrets),
        limits=limits,
        telemetry=telemetry,
    )
    return offer(
        stores=stores,
        transcript=TranscriptPages(
            transcript=stores.transcript,
            texts=WholeTexts(artifacts=stores.artifacts, limits=limits),
            limits=limits,
        ),
        uploads=Uploads(artifacts=stores.artifacts, limits=limits, clock=lambda: NOON),
        pages=PageTokens(limits=limits),
        limits=limits,
        desk=ActionDesk(
            store=stores.actions,
            executors=ActionExecutors(),
            audit=stores.audit,
            clock=lambda: NOON,
            host_id="host",
            host_incarnation="start-1",
        ),
        models=models,
        tool_servers=ToolServers(
            secrets=stores.secrets, folder=Path("/"), limits=limits, clock=lambda: NOON
        ),
        telemetry=telemetry,
        retrieval=Retrieval(
            store=stores.knowledge, embedding=Embedding(embedder=models), shelf=Shelf, limits=limits
        ),
        steering_of=lambda _: None,
        clock=lambda: NOON,
    )


def attach_servicer(stores: Stores, grants: AttachGrants) -> AttachServicer:
    """What serves runners that attach, to a registry with nothing else in it."""
    registry = Registry(identity=HostIdentity("host", "host", "0"))
    return AttachServicer(
        attachments=Attachments(registry=registry, initial_credit=64, expected_seconds=0),
        grants=grants,
        check=RequestCheck(validator=Validator()),
        audit=stores.audit,
        clock=lambda: NOON,
    )


@pytest.fixture
async def edge(stores: Stores, tmp_path: Path) -> AsyncIterator[Edge]:
    tokens, callers = (
        RunTokens(limits=Limits()),
        CallerDirectory(keys=stores.keys, clock=lambda: NOON),
    )
    for role, secret in KEYS.items():
        await stores.keys.create(
            ApiKeyRecord(
                key_id=role, name=role, hash=hash_secret(secret), role=role, created_at=NOON
            )
        )
    limited = ApiKeyRecord(
        key_id="limited",
        name="limited",
        hash=hash_secret(LIMITED),
        role=Role.OPERATOR,
        created_at=NOON,
        workspace="acme",
    )
    await stores.keys.create(limited)
    await callers.reload()
    telemetry = Telemetry(service_version="0", host_id="host")
    gate = Gate(audit=stores.audit, validator=Validator(), clock=lambda: NOON)
    grants = AttachGrants(tokens=stores.attach_tokens, clock=lambda: NOON)
    interceptor = EdgeInterceptor(
        authentication=Authentication(callers=callers, tokens=tokens, attach=grants, gate=gate),
        telemetry=telemetry,
    )
    host_api = HostAPIServicer(gate=gate, capabilities=everything(stores), over=everything)
    server = grpc.aio.server(interceptors=(interceptor,), options=SERVER_OPTIONS)
    address = f"unix:{tmp_path}/s"
    server.add_insecure_port(address)
    async with open_channel(address) as channel:
        edge = Edge(channel, tokens)
        edge.interceptor = interceptor
        gateway_pb2_grpc.add_GatewayServiceServicer_to_server(edge.gateway, server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(Admin(), server)
        discovery_pb2_grpc.add_DiscoveryServiceServicer_to_server(Discovery(), server)
        host_api_pb2_grpc.add_HostAPIServiceServicer_to_server(host_api, server)
        register_attach(server, attach_servicer(stores, grants))
        health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
        await server.start()
        yield edge
    await server.stop(None)
    telemetry.close()


# What errors say.


def _comments(path: str, entry: str) -> Mapping[str, str]:
    """Return the comment above each entry of a file of the contract."""
    found, comment = {}, list[str]()
    for line in (PROTO / path).read_text("utf-8").splitlines():
        text = line.strip()
        if text.startswith("//"):
            comment.append(text.removeprefix("//").strip())
            continue
        if match := re.match(entry, text):
            found[match[1]] = " ".join(comment)
        comment = []
    return found


def test_every_reason_has_the_code_that_the_contract_says() -> None:
    comments = _comments("v1/errors.proto", r"ERROR_REASON_(\w+) = ")
    comments = {name: text for name, text in comments.items() if name != "UNSPECIFIED"}
    assert {name: code.name for name, code in CODES.items()} == {
        name: text.partition(".")[0] for name, text in comments.items()
    }
    assert len(CODES) == len(errors_pb2.ErrorReason.keys()) - 1


def _host_errors() -> list[type[HostError]]:
    return [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, HostError)
    ]


def test_every_error_of_the_host_has_a_reason_of_the_contract_and_each_reason_an_error() -> None:
    reasons = {each.reason for each in _host_errors()}
    assert reasons == set(CODES)


_HARD_TO_BUILD: Mapping[str, HostError] = {
    "NotFound": errors.NotFound("run", "run-9"),
    "InvalidArgument": InvalidArgument([FieldFault("event.type", "required", "not set")]),
    "PayloadTooLarge": errors.PayloadTooLarge("the event", size_bytes=3, limit_bytes=2),
    "BindingConflict": errors.BindingConflict(["b", "a"]),
    "NotImplementedHere": errors.NotImplementedHere("A.B"),
}


async def test_every_error_arrives_with_its_reason_facts_and_words(edge: Edge) -> None:
    for kind in _host_errors():
        error = _HARD_TO_BUILD.get(kind.__name__) or kind(
            "你 cannot", facts={"run_id": "run-1", "x": "你"}, retry_after_seconds=1.5
        )
        told = await edge.fails_with(error)
        assert (told.code, told.reason) == (CODES[error.reason], error.reason)
        assert told.info.domain == "runmesh"
        assert dict(told.info.metadata) == error.facts
        assert told.message == told.status.message == error.message
        assert told.status.code == told.code.value[0]
        retry = told.detail(error_details_pb2.RetryInfo)
        assert (retry is not None) is (error.retry_after_seconds is not None)
        if retry is not None:
            assert retry.retry_delay.ToNanoseconds() == 1_500_000_000


async def test_each_bad_field_is_told_by_path_rule_and_what_was_sent(edge: Edge) -> None:
    faults = [
        FieldFault("event.type", "required", "not set"),
        FieldFault("agent_id", "up to 255 bytes", "string of 256 bytes"),
    ]
    told = await edge.fails_with(InvalidArgument(faults))
    violations = told.detail(error_details_pb2.BadRequest).field_violations
    assert [each.field for each in violations] == ["event.type", "agent_id"]
    for violation, fault in zip(violations, faults, strict=True):
        assert fault.rule in violation.description
        assert fault.got in violation.description


def _worst_requests() -> list[Message]:
    """Return requests that break as much as can be told, in the longest words."""
    keys = [f"{'你' * 40}{number}" for number in range(60)]
    part = types_pb2.ContentPart(url=types_pb2.UrlContent(mime_type="x" * 300, name="y" * 300))
    return [
        gateway_pb2.DispatchRequest(
            event=event_pb2.EventEnvelope(
                type="你" * 50,
                input=event_pb2.EventInput(parts=[part] * 50),
                metadata=dict.fromkeys(keys, "x" * 2000),
            )
        ),
        admin_pb2.ApplyRequest(
            agents=[admin_pb2.Agent(id="你" * 60, runner_id="你" * 60) for _ in range(50)],
            bindings=[admin_pb2.Binding(id="你" * 60) for _ in range(50)],
        ),
    ]


@pytest.mark.parametrize("number", [0, 1])
async def test_most_faults_that_can_be_told_at_once_arrive(edge: Edge, number: int) -> None:
    check = RequestCheck(validator=Validator(Limits().as_mapping()))
    with pytest.raises(InvalidArgument) as raised:
        check.require(_worst_requests()[number])
    told = await edge.fails_with(raised.value)
    assert told.reason == "INVALID_ARGUMENT"
    assert len(told.detail(error_details_pb2.BadRequest).field_violations) > 5


@pytest.mark.parametrize(
    "error",
    [
        NoBinding("no binding for " + "你" * 3000),
        HostError("x" * 100_000, facts={"resource": "你" * 85}),
        errors.NotFound("run", "你" * 85),
        errors.NotFound("run", "\n\x7f" * 120),
        errors.BindingConflict([f"{'b' * 250}{number}" for number in range(100)]),
        InvalidArgument(
            [FieldFault(f"field.{'你' * 200}[{n}]", "rule " * 50, "got " * 50) for n in range(20)]
        ),
    ],
)
async def test_error_of_any_length_arrives_with_its_reason(edge: Edge, error: HostError) -> None:
    told = await edge.fails_with(error)
    assert (told.code, told.reason) == (CODES[error.reason], error.reason)
    assert told.message[:10] == error.message[:10]


async def test_unknown_error_is_told_in_fixed_words_and_logged_once_with_its_trace(
    edge: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    told = await edge.fails_with(RuntimeError(f"/home/me: {SECRET_TEXT}"))
    assert (told.code, told.reason) == (grpc.StatusCode.INTERNAL, "RUNTIME_ERROR")
    assert SECRET_TEXT not in told.message + str(told.status)
    assert "/home/me" not in told.message + str(told.status)
    (record,) = [each for each in caplog.records if each.name == "runmesh.calls"]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None


async def test_status_that_a_servicer_sets_itself_passes(edge: Edge) -> None:
    async def serve(_request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.DATA_LOSS, "mine")

    edge.gateway.serve = serve
    told = await refusal(edge.get_run())
    assert (told.code, told.message) == (grpc.StatusCode.DATA_LOSS, "mine")


async def test_call_of_a_client_that_left_ends_its_code_and_is_waited_for(edge: Edge) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def serve(_request: Any, _context: Any) -> Any:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    edge.gateway.serve = serve
    call = asyncio.create_task(edge.get_run())
    await asyncio.wait_for(began.wait(), 5)
    waiting = asyncio.create_task(edge.interceptor.idle())
    await asyncio.sleep(0)
    assert not waiting.done()
    call.cancel()
    await asyncio.wait_for(waiting, 5)
    assert ended.is_set()


# Who may call what.


def _methods(module: Any, service: str) -> list[str]:
    descriptor = module.DESCRIPTOR.services_by_name[service]
    return [f"/{descriptor.full_name}/{method.name}" for method in descriptor.methods]


def _allowed(method: str) -> frozenset[Role]:
    return ROLES.get(method, frozenset({Role.OPERATOR}))


def test_roles_name_methods_that_there_are() -> None:
    there = {
        *_methods(gateway_pb2, "GatewayService"),
        *_methods(discovery_pb2, "DiscoveryService"),
        *_methods(admin_pb2, "AdminService"),
    }
    assert set(ROLES) <= there
    assert all(Role.OPERATOR in roles for roles in ROLES.values())


def test_gateway_takes_the_roles_that_the_contract_says() -> None:
    comments = _comments("v1/gateway.proto", r"rpc (\w+)\(")
    for method in _methods(gateway_pb2, "GatewayService"):
        comment = comments[method.rpartition("/")[2]]
        needs = re.search(r"Needs ([^.]+)\.", comment)
        if needs is None:
            assert "As Dispatch" in comment or "as Dispatch" in comment
            needs = re.search(r"Needs ([^.]+)\.", comments["Dispatch"])
        assert needs is not None
        named = {Role(each) for each in re.findall("`(\\w+)`", needs[1])}
        assert _allowed(method) == (named or set(Role)), method


def test_administration_takes_viewers_where_it_only_reads() -> None:
    comments = _comments("admin/v1/admin.proto", r"rpc (\w+)\(")
    for method in _methods(admin_pb2, "AdminService"):
        name = method.rpartition("/")[2]
        is_look = name.startswith(("Get", "List", "Explain", "Count", "Search"))
        reads = is_look and "Needs `operator`" not in comments[name]
        expected = {Role.VIEWER, Role.OPERATOR} if reads else {Role.OPERATOR}
        assert _allowed(method) == expected, method


async def test_servicer_knows_its_caller(edge: Edge) -> None:
    seen: list[str] = []

    async def serve(_request: Any, _context: Any) -> Any:
        seen.append(current_caller().key_id)
        return gateway_pb2.GetRunResponse()

    edge.gateway.serve = serve
    for secret in KEYS.values():
        await edge.get_run(secret)
    assert seen == [str(role) for role in Role]


@pytest.mark.parametrize(
    "method",
    [
        *_methods(gateway_pb2, "GatewayService"),
        *_methods(discovery_pb2, "DiscoveryService"),
        *_methods(admin_pb2, "AdminService"),
    ],
)
async def test_each_call_that_takes_a_key_takes_one_of_the_right_role(
    edge: Edge, method: str
) -> None:
    nobody = await edge.call(method, None)
    assert nobody is not None
    assert nobody.reason == "UNAUTHENTICATED"
    wrong = await edge.call(method, "rmk_wrong")
    assert wrong is not None
    assert wrong.reason == "UNAUTHENTICATED"
    for role, secret in KEYS.items():
        told = await edge.call(method, secret)
        reason = "" if told is None else told.reason
        assert (reason == "UNAUTHORIZED") is (role not in _allowed(method)), (method, role)


async def test_role_that_will_not_do_is_told_those_that_would(edge: Edge) -> None:
    told = await edge.call("/runmesh.v1.GatewayService/SubmitEvent", KEYS[Role.VIEWER])
    assert told is not None
    assert (told.code, told.reason) == (grpc.StatusCode.PERMISSION_DENIED, "UNAUTHORIZED")
    assert "ingress or operator" in told.message


@pytest.mark.parametrize("method", _methods(host_api_pb2, "HostAPIService"))
async def test_host_api_takes_both_tokens_of_a_run_and_no_api_key(edge: Edge, method: str) -> None:
    for secret in (None, KEYS[Role.OPERATOR]):
        told = await edge.call(method, secret)
        assert told is not None
        assert told.reason == "UNAUTHENTICATED"
    token = edge.tokens.issue(snapshot=rights(), instance_token=INSTANCE)
    call: Any = edge.channel.unary_unary(method)
    metadata = grpc.aio.Metadata(
        ("authorization", f"Bearer {token}"), ("runmesh-instance", INSTANCE)
    )
    if method.endswith("/GetPrompt"):
        # It needs nothing else.
        await call(b"", metadata=metadata)
        return
    # What such a call lacks now is a right, a field or something behind it, not a token.
    told = await refusal(call(b"", metadata=metadata))
    assert told.reason not in ("UNAUTHENTICATED", "RUNTIME_ERROR")


async def test_call_of_a_run_without_good_tokens_is_in_the_audit(
    edge: Edge, stores: Stores
) -> None:
    await edge.call("/runmesh.v1.HostAPIService/GetState", "rmr_wrong")
    (row,) = (await stores.audit.page(AuditQuery())).items
    assert (row.rpc, row.outcome, row.reason) == (
        "GetState",
        AuditOutcome.REFUSED,
        "UNAUTHENTICATED",
    )
    assert (row.run_id, row.at) == (None, NOON)


def test_nobody_is_anybodys_run_outside_of_a_call() -> None:
    for current in (current_caller, current_access):
        with pytest.raises(LookupError):
            current()


@pytest.mark.parametrize("secret", [None, "rma_wrong", *KEYS.values()])
async def test_attach_takes_an_attach_token_and_no_api_key(
    edge: Edge, stores: Stores, secret: str | None
) -> None:
    stub: Any = attach_pb2_grpc.AttachServiceStub(edge.channel)
    metadata = [] if secret is None else [("authorization", f"Bearer {secret}")]
    call = stub.Attach(metadata=grpc.aio.Metadata(*metadata))
    told = await refusal(call.read())
    assert (told.code, told.reason) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
    (row,) = (await stores.audit.page(AuditQuery())).items
    assert (row.rpc, row.outcome) == ("Attach", AuditOutcome.REFUSED)


async def test_health_takes_no_key(edge: Edge) -> None:
    stub: Any = health_pb2_grpc.HealthStub(edge.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_method_that_nobody_serves_is_unimplemented(edge: Edge) -> None:
    told = await edge.call("/runmesh.v1.GatewayService/NoSuchMethod", KEYS[Role.OPERATOR])
    assert told is not None
    assert told.code is grpc.StatusCode.UNIMPLEMENTED
    assert (await edge.call("/other.v1.Service/Method", None)) is not None


@pytest.mark.parametrize("request_bytes", [b"\x0a\x01\xff", b"\x0a\x05a"])
async def test_request_that_cannot_be_read_is_the_callers_fault_and_told_to_who_may_call(
    edge: Edge, request_bytes: bytes
) -> None:
    call: Any = edge.channel.unary_unary("/runmesh.v1.GatewayService/GetRun")
    for secret, reason in ((KEYS[Role.VIEWER], "INVALID_ARGUMENT"), ("rmk_x", "UNAUTHENTICATED")):
        metadata = grpc.aio.Metadata(("authorization", f"Bearer {secret}"))
        told = await refusal(call(request_bytes, metadata=metadata))
        assert told.reason == reason


async def test_binary_and_foreign_metadata_disturb_nothing(edge: Edge) -> None:
    async def serve(_request: Any, _context: Any) -> Any:
        return gateway_pb2.GetRunResponse()

    edge.gateway.serve = serve
    await edge.get_run(
        KEYS[Role.VIEWER],
        ("authorization-bin", b"\xff\x00"),
        ("traceparent", "garbage"),
        ("x-run", "1"),
    )


async def test_trace_of_the_caller_goes_on_in_the_call(edge: Edge) -> None:
    traces: list[str] = []

    async def serve(_request: Any, _context: Any) -> Any:
        traces.append(format_trace_id(get_current_span().get_span_context().trace_id))
        return gateway_pb2.GetRunResponse()

    edge.gateway.serve = serve
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    await edge.get_run(KEYS[Role.VIEWER], ("traceparent", f"00-{trace}-00f067aa0ba902b7-01"))
    await edge.get_run(KEYS[Role.VIEWER])
    assert traces[0] == trace
    assert traces[1] not in {trace, "0" * 32}


async def test_no_secret_is_in_the_log_whatever_the_level(
    edge: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = edge.tokens.issue(snapshot=rights(), instance_token=INSTANCE)

    async def serve(_request: Any, _context: Any) -> Any:
        raise RuntimeError

    edge.gateway.serve = serve
    for secret in (*KEYS.values(), LIMITED, "rmk_canary-that-is-wrong", token):
        await refusal(edge.get_run(secret))
        await edge.call("/runmesh.v1.HostAPIService/GetPrompt", secret)
        await edge.call("/runmesh.admin.v1.AdminService/GetHost", secret)
    lines = "\n".join(LineFormatter().format(record) for record in caplog.records)
    assert "GetRun failed" in lines
    for secret in ("canary", token, INSTANCE):
        assert secret not in lines


@pytest.mark.parametrize(
    "method",
    [
        *_methods(admin_pb2, "AdminService"),
        "/runmesh.v1.DiscoveryService/ListRunners",
        *_methods(gateway_pb2, "GatewayService"),
    ],
)
async def test_key_limited_to_a_workspace_does_nothing_that_concerns_the_whole_host(
    edge: Edge, method: str
) -> None:
    told = await edge.call(method, LIMITED)
    assert told is not None
    assert (told.reason == "UNAUTHORIZED") is ("Gateway" not in method)
