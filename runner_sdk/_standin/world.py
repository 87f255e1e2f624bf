"""All that the stand-in host has, and which part of it answers which call."""

from collections.abc import Callable, Mapping
from typing import Any

from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import result_pb2, types_pb2
from runmesh.v1.event_pb2 import EventEnvelope

from runner_sdk._standin.active_run import ActiveRun
from runner_sdk._standin.artifacts import StandInArtifacts
from runner_sdk._standin.conversation import StandInEvents, StandInHistory
from runner_sdk._standin.scripts import StandInKnowledge, StandInModels, StandInTools
from runner_sdk._standin.steering import StandInActions, StandInSteering
from runner_sdk._standin.values import StandInState, StandInStorage
from runner_sdk.results import assistant_message


class World:
    """State, storage, transcript, events, artifacts, and what else a host keeps and offers."""

    def __init__(self) -> None:
        self.state = StandInState()
        self.storage = StandInStorage()
        self.artifacts = StandInArtifacts()
        self.history = StandInHistory(self.artifacts)
        self.events = StandInEvents()
        self.models = StandInModels()
        self.tools = StandInTools()
        self.knowledge = StandInKnowledge()
        self.steering = StandInSteering()
        self.actions = StandInActions()
        self.prompt = api.GetPromptResponse()

    def handlers(self) -> Mapping[str, Callable[[ActiveRun, Any], Any]]:
        """Returns what answers each call, by its name."""
        return {
            "InvokeModel": self.models.invoke,
            "StreamModel": self.models.stream,
            "RerankDocuments": self.models.rerank,
            "EmbedTexts": self.models.embed,
            "GetToolDetail": self.tools.detail,
            "CallTool": self.tools.call,
            "ListKnowledgeBases": self.knowledge.list,
            "RetrieveKnowledge": self.knowledge.retrieve,
            "PageHistory": self.history.page,
            "SearchHistory": self.history.search,
            "GetEvent": self.events.get,
            "PageEvents": self.events.page,
            "GetArtifactMetadata": self.artifacts.metadata,
            "ReadArtifact": self.artifacts.read,
            "StreamArtifact": self.artifacts.stream,
            "CreateArtifact": self.artifacts.create,
            "GetState": self.state.get,
            "SetState": self.state.set,
            "DeleteState": self.state.delete,
            "ListState": self.state.list,
            "GetStorage": self.storage.get,
            "SetStorage": self.storage.set,
            "DeleteStorage": self.storage.delete,
            "ListStorage": self.storage.list,
            "GetPrompt": self._get_prompt,
            "RequestAction": self.actions.request,
            "PullSteering": self.steering.pull,
            "AcknowledgeSteering": self.steering.acknowledge,
        }

    def _get_prompt(self, _: ActiveRun, __: api.GetPromptRequest) -> api.GetPromptResponse:
        return self.prompt

    def begin(self, run: ActiveRun) -> None:
        """Stores the event that a run answers, and what was said in it."""
        context = run.context
        envelope = EventEnvelope(
            event_id=context.event.event_id,
            type=context.event.type,
            source=context.event.source,
            conversation_id=context.conversation.conversation_id,
            thread_id=context.conversation.thread_id,
            metadata=context.metadata,
        )
        if context.event.HasField("data_json"):
            envelope.data_json = context.event.data_json
        if context.HasField("actor"):
            envelope.actor.CopyFrom(context.actor)
        if context.HasField("input"):
            envelope.input.CopyFrom(context.input)
            parts = context.input.parts or [types_pb2.ContentPart(text=context.input.text)]
            if context.event.type == "message.received":
                message = types_pb2.ChatMessage(role=types_pb2.CHAT_ROLE_USER, parts=parts)
                self.history.add_message(run, message, context.input.attachments)
        self.events.add(envelope)

    def take(self, run: ActiveRun, result: result_pb2.RunResult) -> None:
        """Keeps of a result what a host keeps; what may not be kept is left out."""
        match result.WhichOneof("payload"):
            case "message_delta":
                run.streamed += result.message_delta.text
            case "message_completed":
                self._say(run, result.message_completed.message)
            case "run_completed":
                self._complete(run, result.run_completed)
            case "state_updated":
                update = result.state_updated
                if run.has_identity(update.scope):
                    self.state.write(update.scope, update.key, update.value_json)
            case "action_requested":
                action = result.action_requested
                self.actions.requested.setdefault(action.idempotency_key, action)
            case "artifact_created":
                run.artifacts.append(self._artifact(result.artifact_created))

    def _say(self, run: ActiveRun, message: types_pb2.ChatMessage) -> None:
        self.history.add_message(run, message, run.artifacts)
        run.streamed, run.artifacts = "", []

    def _complete(self, run: ActiveRun, completed: result_pb2.RunCompleted) -> None:
        if completed.HasField("message"):
            self._say(run, completed.message)
        elif run.streamed or run.artifacts:
            self._say(run, assistant_message([run.streamed] if run.streamed else []))

    def _artifact(self, created: result_pb2.ArtifactCreated) -> types_pb2.ArtifactRef:
        if created.WhichOneof("artifact") == "ref":
            return created.ref
        header = api.ArtifactHeader(
            type=created.type or "file",
            mime_type=created.inline.mime_type,
            name=created.inline.name,
            summary=created.summary,
        )
        return self.artifacts.add(created.inline.data, header)
