"""What a test gives the stand-in host, and what it finds there afterwards."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from runmesh.v1 import context_pb2, event_pb2, result_pb2, types_pb2
from runmesh.v1 import host_api_pb2 as api

from runner_sdk._host.requests import make
from runner_sdk._host.storage import StorageArea, storage_area
from runner_sdk._json import to_json
from runner_sdk._standin.scripts import ModelScript
from runner_sdk._standin.world import World
from runner_sdk.messages import MessageLike, chat_messages
from runner_sdk.results import StateScope, state_scope

ModelKind: TypeAlias = Literal["chat", "rerank", "embedding"]
ModelAbility: TypeAlias = Literal["vision", "tool_calling", "reasoning", "json"]


class Givens:
    """The methods of the stand-in host that give runs something, or show what they left."""

    def __init__(self) -> None:
        self._world = World()

    def add_model(
        self,
        model_id: str,
        *answers: ModelScript,
        kind: ModelKind = "chat",
        context_window_tokens: int | None = None,
        abilities: Iterable[ModelAbility] = (),
    ) -> None:
        """Gives runs a model.

        Args:
            model_id: What calls name it by.
            *answers: What it answers, one call after the other; the last goes on for ever. Text, a
                message (see `tool_call`), an InvokeModelResponse, a HostCallError, or a function
                of the request. Rankings and vectors are given with `answer`.
            kind: What it is for.
            context_window_tokens: Tokens that fit into one call. None: it does not say.
            abilities: What it can do beside text.
        """
        resource = context_pb2.ModelResource(
            model_id=model_id,
            kind=context_pb2.ModelKind.Value(f"MODEL_KIND_{kind.upper()}"),
            provider="stand-in",
            name=model_id,
            context_window_tokens=context_window_tokens,
            abilities=[
                context_pb2.ModelAbility.Value(f"MODEL_ABILITY_{each.upper()}")
                for each in abilities
            ],
        )
        self._world.models.add(resource, answers)

    def add_tool(
        self,
        name: str,
        answer: object,
        *,
        description: str = "",
        parameters_schema: Mapping[str, Any] | None = None,
    ) -> None:
        """Gives runs a tool.

        Args:
            name: What calls name it by.
            answer: What it answers: text, a JSON value, a CallToolResponse, or a function of its
                parameters that returns one. What a function raises is an answer with `is_error`.
            description: What it does.
            parameters_schema: JSON Schema of its parameters.
        """
        schema = {"type": "object"} if parameters_schema is None else dict(parameters_schema)
        resource = context_pb2.ToolResource(
            name=name,
            type="stand-in",
            description=description,
            parameters_schema_json=to_json(schema, field="parameters_schema"),
        )
        self._world.tools.add(resource, answer)

    def add_knowledge_base(
        self, knowledge_base_id: str, *passages: str | api.KnowledgeHit, name: str = ""
    ) -> None:
        """Gives runs a knowledge base.

        Args:
            knowledge_base_id: What calls name it by.
            *passages: What can be found: by how many of a query's words are in it, or by a hit's
                own score.
            name: A name to show.
        """
        resource = context_pb2.KnowledgeBaseResource(
            knowledge_base_id=knowledge_base_id, name=name or knowledge_base_id, kind="stand-in"
        )
        self._world.knowledge.add(resource, passages)

    def add_history(self, *said: MessageLike | api.TranscriptItem) -> None:
        """Adds to the transcript: text of the user's, (role, text), messages or whole items.

        What runs are told, and what they say, is added by itself.
        """
        for entry in said:
            if isinstance(entry, api.TranscriptItem):
                self._world.history.add(entry)
                continue
            for message in chat_messages([entry]):
                text = "".join(part.text for part in message.parts)
                item = api.TranscriptItem(role=message.role, text=text, parts=message.parts)
                item.artifacts.extend(message.artifacts)
                self._world.history.add(item)

    def add_event(self, event: event_pb2.EventEnvelope) -> None:
        """Adds an event to the conversation. Those that runs answer are added by themselves."""
        self._world.events.add(event)

    def add_artifact(
        self,
        content: bytes,
        *,
        type: str = "file",
        name: str = "",
        mime_type: str = "",
        summary: str = "",
    ) -> types_pb2.ArtifactRef:
        """Stores an artifact that runs may read, and returns its reference."""
        header = make(
            api.ArtifactHeader, type=type, name=name, mime_type=mime_type, summary=summary
        )
        return self._world.artifacts.add(content, header)

    def set_prompt(
        self, *messages: MessageLike, fragments: Mapping[str, str] | None = None
    ) -> None:
        """Sets the instructions of runs: the bound prompt, and fragments by their source."""
        self._world.prompt = api.GetPromptResponse(
            messages=chat_messages(
                ("system", entry) if isinstance(entry, str) else entry for entry in messages
            ),
            fragments=[
                make(api.PromptFragment, source=source, text=text)
                for source, text in (fragments or {}).items()
            ],
        )

    def set_state(self, scope: StateScope, values: Mapping[str, Any]) -> None:
        """Writes values of state."""
        self._world.state.seed(state_scope(scope), values)

    def set_storage(self, area: StorageArea, values: Mapping[str, bytes]) -> None:
        """Stores values."""
        for key, value in values.items():
            self._world.storage.write(storage_area(area), key, value)

    def state(self, scope: StateScope) -> dict[str, Any]:
        """Returns the keys and values of a scope, as runs have left them."""
        return self._world.state.values(state_scope(scope))

    def storage(self, area: StorageArea) -> dict[str, bytes]:
        """Returns the keys and values of an area, as runs have left them."""
        return self._world.storage.values(storage_area(area))

    def artifact(self, artifact: str | types_pb2.ArtifactRef) -> bytes:
        """Returns the bytes of an artifact, a run's or the test's."""
        artifact_id = artifact if isinstance(artifact, str) else artifact.artifact_id
        return self._world.artifacts.contents[artifact_id]

    @property
    def history(self) -> list[api.TranscriptItem]:
        """The transcript, oldest first."""
        return list(self._world.history.items)

    @property
    def actions(self) -> list[result_pb2.ActionRequested]:
        """The actions that runs asked for, each key once, in order."""
        return list(self._world.actions.requested.values())


def tool_call(
    tool_name: str, *, call_id: str = "call-1", **arguments: Any
) -> types_pb2.ChatMessage:
    """Makes a model's answer that wants a tool called.

    Args:
        tool_name: The tool.
        call_id: The call's id.
        **arguments: Its arguments.
    """
    call = types_pb2.ToolCall(
        id=call_id, name=tool_name, arguments_json=to_json(arguments, field="arguments")
    )
    return types_pb2.ChatMessage(role=types_pb2.CHAT_ROLE_ASSISTANT, tool_calls=[call])


def state_scopes_of(scopes: Iterable[StateScope] | None) -> frozenset[int]:
    """Returns the numbers of scopes; None: all."""
    if scopes is None:
        return frozenset(result_pb2.StateScope.values()) - {result_pb2.STATE_SCOPE_UNSPECIFIED}
    return frozenset(state_scope(scope) for scope in scopes)
