"""A golden run request, with everything that a runner can be handed."""

from google.protobuf.duration_pb2 import Duration
from runmesh.v1 import context_pb2, event_pb2, manifest_pb2, run_pb2

from tests.contract.golden.events import actor, delivery, event_input, raw_ref, subject
from tests.contract.golden.values import (
    BEYOND_DOUBLE,
    JSON,
    JSON_VALUE,
    LATE,
    METADATA,
    RUN_ID,
    SHA256,
    TEXT,
    TIME,
)


def run_request() -> run_pb2.RunRequest:
    """A run with everything."""
    return run_pb2.RunRequest(
        runner_id="plugin:acme/echo.v2/default",
        context=_context(),
        timeout=Duration(seconds=300, nanos=1),
        host_access=run_pb2.HostAccess(
            host_id="host-1",
            address="unix:/run/host.sock",
            run_token="rmr_not-a-token",
            instance_token="rmi_not-a-token",
        ),
    )


def _context() -> context_pb2.RunContext:
    return context_pb2.RunContext(
        run_id=RUN_ID,
        trigger=context_pb2.Trigger(
            type="message.received", source=event_pb2.EVENT_SOURCE_PLATFORM, time=TIME
        ),
        event=context_pb2.EventContext(
            event_id="evt-1",
            type="message.received",
            time=TIME,
            source=event_pb2.EVENT_SOURCE_PLATFORM,
            source_event_name="GroupMessage",
            raw_ref=raw_ref(),
            data_json=JSON,
        ),
        conversation=context_pb2.Conversation(
            conversation_id="明天",
            thread_id="thread",
            launcher_type="group",
            launcher_id="g-1",
            sender_id="u-1",
            bot_id="bot",
            workspace_id="workspace",
        ),
        actor=actor(),
        subject=subject(),
        input=event_input(),
        delivery=delivery(),
        resources=_resources(),
        context=_access(),
        state=_state(),
        runtime=_runtime(),
        agent_id="default",
        binding_id="default",
        session_key="session-1",
        config_json=JSON,
        adapter_json="{}",
        metadata=METADATA,
    )


def _resources() -> context_pb2.AgentResources:
    return context_pb2.AgentResources(
        models=[
            context_pb2.ModelResource(
                model_id="model-1",
                kind=context_pb2.MODEL_KIND_CHAT,
                provider="openai",
                name=TEXT,
                context_window_tokens=BEYOND_DOUBLE,
                abilities=[
                    context_pb2.MODEL_ABILITY_VISION,
                    context_pb2.MODEL_ABILITY_TOOL_CALLING,
                ],
            )
        ],
        tools=[
            context_pb2.ToolResource(
                name="search", type="mcp", description=TEXT, parameters_schema_json="{}"
            )
        ],
        knowledge_bases=[
            context_pb2.KnowledgeBaseResource(knowledge_base_id="kb-1", name=TEXT, kind="documents")
        ],
        skills=[
            context_pb2.SkillResource(name="invoices", display_name="Invoices", description=TEXT)
        ],
        files=[
            context_pb2.FileResource(
                file_id="f-1",
                name="图.png",
                mime_type="image/png",
                source=manifest_pb2.FILE_SOURCE_CONFIG,
                artifact_id="art-6",
            )
        ],
        storage=[manifest_pb2.STORAGE_AREA_PLUGIN, manifest_pb2.STORAGE_AREA_BINDING],
        platform_actions=["message.send"],
    )


def _access() -> context_pb2.ContextAccess:
    return context_pb2.ContextAccess(
        conversation_id="明天",
        thread_id="thread",
        latest_cursor="cursor-1",
        event_position=0,
        has_history_before=True,
        inline_policy=context_pb2.InlinePolicy(
            mode=context_pb2.INLINE_MODE_CURRENT_EVENT, delivered_count=1, reason=TEXT
        ),
        available_apis=context_pb2.AvailableApis(
            history_page=True,
            history_search=True,
            event_get=True,
            event_page=True,
            artifact_metadata=True,
            artifact_read=True,
            artifact_create=True,
            state=True,
            storage=True,
            prompt=True,
            steering=True,
        ),
    )


def _state() -> context_pb2.StateSnapshot:
    return context_pb2.StateSnapshot(
        conversation_json={"counter": str(BEYOND_DOUBLE), "a": JSON},
        actor_json={"name": JSON_VALUE},
        subject_json={"seen": "true"},
        runner_json={"n": "null"},
        binding_json={"b": "[]"},
        workspace_json={"w": "{}"},
        truncated=True,
    )


def _runtime() -> context_pb2.RuntimeContext:
    return context_pb2.RuntimeContext(
        host_id="host-1",
        host_version="0.1.0",
        protocol_version="1",
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
        attempt=2,
        timeout=Duration(seconds=300),
        deadline=LATE,
        locale="zh_Hans",
        time_zone="Asia/Shanghai",
        static_refs={
            "policy": context_pb2.StaticRef(version="2", sha256=SHA256),
            "guide": context_pb2.StaticRef(version="1", sha256=SHA256),
        },
        metadata=METADATA,
    )
