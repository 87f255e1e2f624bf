"""The table of HostAPI: of every call, what is granted and every way that it can be refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runmesh.v1 import host_api_pb2 as pb
from runmesh.v1 import manifest_pb2, result_pb2, types_pb2

Fields = Mapping[str, Any]

#: A size above the limits that the table is tried under.
TOO_MANY_BYTES = 5000
#: What stands for the id of something of the run's own, to be filled in by who tries the table.
OWN = "<own>"
#: Something that exists and is another's, and something that never was.
FOREIGN, ABSENT = "<foreign>", "<absent>"

CONVERSATION = result_pb2.STATE_SCOPE_CONVERSATION
PLUGIN = manifest_pb2.STORAGE_AREA_PLUGIN
_HELLO = types_pb2.ChatMessage(
    role=types_pb2.CHAT_ROLE_USER, parts=[types_pb2.ContentPart(text="hello")]
)
_LARGE = types_pb2.ChatMessage(
    role=types_pb2.CHAT_ROLE_USER,
    parts=[
        types_pb2.ContentPart(
            inline=types_pb2.InlineContent(data=b"x" * TOO_MANY_BYTES, mime_type="image/png")
        )
    ],
)
_ACTION = result_pb2.ActionRequested(action="message.send", idempotency_key="key-1")


def permission(group: str, name: str) -> Fields:
    """A right that the manifest does not ask for."""
    return {"without": (group, name)}


def capability(name: str) -> Fields:
    """Something that the runner cannot do."""
    return {"incapable": name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One call.

    Attributes:
        fields: A request that is granted; of a stream, its messages.
        outcome: How the granted call ends: empty when it is done, else the reason.
        endless: Whether it is a stream that only its runner or the run's end ends.
        resource: What its audit row names.
        scope: The scope or area that its audit row names.
        lacking: Of each right that it needs, what takes it away.
        another: The same request about something else, with FOREIGN in it; None where a request
            names nothing that could be another's.
        unseen: The reason that it then has.
        too_large: What of it makes it too large; None where nothing of it has a limit of its own.
        broken: Fields that break a rule; None where it has none that can.
    """

    fields: Fields | list[Fields] = field(default_factory=dict)
    outcome: str = ""
    endless: bool = False
    resource: str = ""
    scope: str = ""
    lacking: Mapping[str, Fields] = field(default_factory=dict)
    another: Fields | None = None
    unseen: str = "NOT_FOUND"
    too_large: Fields | list[Fields] | None = None
    broken: Fields | list[Fields] | None = None


def _model(name: str, permitted: str, model: str, /, **fields: Any) -> dict[str, Row]:
    large = {"messages": [_LARGE]} if "messages" in fields else None
    return {
        name: Row(
            fields={"model_id": model, **fields},
            # Nothing is served where these models are; that a call is granted shows in this.
            outcome="UNAVAILABLE",
            resource=model,
            lacking={"permission": permission("models", permitted)},
            another={"model_id": FOREIGN},
            too_large=large,
            broken={"model_id": ""},
        )
    }


def _tool(name: str, permitted: str, /, **fields: Any) -> dict[str, Row]:
    return {
        name: Row(
            fields={"tool_name": "files__read", **fields},
            # Nobody has started its server.
            outcome="UNAVAILABLE",
            resource="files__read",
            lacking={
                "permission": permission("tools", permitted),
                "capability": capability("tool_calling"),
            },
            another={"tool_name": FOREIGN},
            broken={"tool_name": ""},
        )
    }


def _artifact(name: str, permitted: str, /, **more: Any) -> dict[str, Row]:
    return {
        name: Row(
            fields={"artifact_id": OWN},
            resource=OWN,
            lacking={"permission": permission("artifacts", permitted)},
            another={"artifact_id": FOREIGN},
            broken={"artifact_id": ""},
            **more,
        )
    }


def _state(name: str, /, key: str = "key", another: bool = False, **more: Any) -> dict[str, Row]:
    fields = {"scope": CONVERSATION, key: "mine", **more.pop("fields", {})}
    return {
        name: Row(
            fields=fields,
            resource="mine",
            scope="conversation",
            lacking={
                "scope": {"without_scope": "conversation"},
                "state": {"without_state": True},
                "identity": {"without_conversation": True},
            },
            another={"scope": CONVERSATION, key: FOREIGN} if another else None,
            broken={"scope": 0, key: "mine"},
            **more,
        )
    }


def _storage(name: str, /, key: str = "key", another: bool = False, **more: Any) -> dict[str, Row]:
    fields = {"area": PLUGIN, key: "mine", **more.pop("fields", {})}
    return {
        name: Row(
            fields=fields,
            resource="mine",
            scope="plugin",
            lacking={
                "manifest": {"unasked_area": "plugin"},
                "policy": {"without_area": "plugin"},
            },
            another={"area": PLUGIN, key: FOREIGN} if another else None,
            broken={"area": 0, key: "mine"},
            **more,
        )
    }


#: Every call of the service, by its name.
ROWS: Mapping[str, Row] = {
    **_model("InvokeModel", "invoke", "small", messages=[_HELLO]),
    **_model("StreamModel", "stream", "small", messages=[_HELLO]),
    **_model("RerankDocuments", "rerank", "ranker", query="q", documents=["d"]),
    **_model("EmbedTexts", "embed", "embedder", texts=["t"]),
    **_tool("GetToolDetail", "detail"),
    **_tool("CallTool", "call", parameters_json="{}"),
    "ListKnowledgeBases": Row(
        lacking={
            "permission": permission("knowledge_bases", "list"),
            "capability": capability("knowledge_retrieval"),
        },
        broken={"page_size": -1},
    ),
    "RetrieveKnowledge": Row(
        fields={"knowledge_base_ids": ["handbook"], "query": "q"},
        resource="handbook",
        lacking={
            "permission": permission("knowledge_bases", "retrieve"),
            "capability": capability("knowledge_retrieval"),
        },
        another={"knowledge_base_ids": [FOREIGN], "query": "q"},
        broken={"query": ""},
    ),
    "PageHistory": Row(
        lacking={"permission": permission("history", "page")},
        # Another conversation takes a right of its own, whether there is one by this id or not.
        another={"conversation_id": FOREIGN},
        unseen="UNAUTHORIZED",
        broken={"page_size": -1},
    ),
    "SearchHistory": Row(
        fields={"query": "marmalade"},
        lacking={"permission": permission("history", "search")},
        broken={"query": ""},
    ),
    "GetEvent": Row(
        fields={"event_id": OWN},
        resource=OWN,
        lacking={"permission": permission("events", "get")},
        another={"event_id": FOREIGN},
        broken={"event_id": ""},
    ),
    "PageEvents": Row(
        lacking={"permission": permission("events", "page")}, broken={"page_size": -1}
    ),
    **_artifact("GetArtifactMetadata", "metadata"),
    **_artifact("ReadArtifact", "read", too_large={"artifact_id": OWN, "length": TOO_MANY_BYTES}),
    **_artifact("StreamArtifact", "read"),
    "CreateArtifact": Row(
        fields=[{"header": pb.ArtifactHeader(type="file")}, {"chunk": b"bytes"}],
        lacking={"permission": permission("artifacts", "create")},
        too_large=[
            {"header": pb.ArtifactHeader(type="file")},
            {"chunk": b"x" * TOO_MANY_BYTES},
        ],
        broken=[{"chunk": b"no header"}],
    ),
    **_state("GetState", another=True),
    **_state(
        "SetState",
        fields={"value_json": "1"},
        too_large={
            "scope": CONVERSATION,
            "key": "mine",
            "value_json": f'"{"x" * TOO_MANY_BYTES}"',
        },
    ),
    **_state("DeleteState"),
    **_state("ListState", "prefix"),
    **_storage("GetStorage", another=True),
    **_storage(
        "SetStorage",
        fields={"value": b"1"},
        too_large={"area": PLUGIN, "key": "mine", "value": b"x" * TOO_MANY_BYTES},
    ),
    **_storage("DeleteStorage"),
    **_storage("ListStorage", "prefix"),
    "GetPrompt": Row(),
    "RequestAction": Row(
        fields={"action": _ACTION},
        resource="message.send",
        lacking={
            "manifest": {"unasked_action": "message.send"},
            "capability": capability("platform_api"),
        },
        too_large={
            "action": result_pb2.ActionRequested(
                action="message.send",
                idempotency_key="key-2",
                payload_json=f'"{"x" * TOO_MANY_BYTES}"',
            )
        },
        broken={"action": result_pb2.ActionRequested(action="message.send")},
    ),
    "PullSteering": Row(endless=True, lacking={"capability": capability("steering")}),
    "AcknowledgeSteering": Row(
        fields={"steering_ids": [OWN]},
        resource=OWN,
        lacking={"capability": capability("steering")},
        another={"steering_ids": [FOREIGN]},
        broken={"steering_ids": [""]},
    ),
}
