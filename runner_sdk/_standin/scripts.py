"""Models, tools and knowledge bases of the stand-in host: they answer what a test says."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from google.protobuf.message import Message
from runmesh.v1 import context_pb2, types_pb2
from runmesh.v1 import host_api_pb2 as api

from runner_sdk._host.requests import make
from runner_sdk._json import from_json, to_json
from runner_sdk._standin.active_run import ActiveRun
from runner_sdk._standin.pages import page_of
from runner_sdk._standin.refusals import not_found, refused
from runner_sdk.errors import HostCallError
from runner_sdk.results import assistant_message

ModelScript: TypeAlias = (
    str
    | types_pb2.ChatMessage
    | api.InvokeModelResponse
    | HostCallError
    | Callable[[Any], "ModelScript"]
)
"""What a model answers: text, a message, a whole answer, an error, or a function of the request."""

_WORD_PIECES = 3


@dataclass(slots=True)
class _Model:
    resource: context_pb2.ModelResource
    answers: Sequence[ModelScript]
    used: int = 0

    def next_answer(self) -> ModelScript:
        """Returns the next answer; the last goes on for ever."""
        answer = self.answers[min(self.used, len(self.answers) - 1)]
        self.used += 1
        return answer


class StandInModels:
    """Models that answer one answer after the other."""

    def __init__(self) -> None:
        self._models: dict[str, _Model] = {}

    @property
    def resources(self) -> list[context_pb2.ModelResource]:
        """The models, as runs are told of them."""
        return [model.resource for model in self._models.values()]

    def add(self, resource: context_pb2.ModelResource, answers: Sequence[ModelScript]) -> None:
        """Adds a model."""
        self._models[resource.model_id] = _Model(resource, answers)

    def invoke(self, run: ActiveRun, request: api.InvokeModelRequest) -> api.InvokeModelResponse:
        """Answers whole."""
        return self._answer("InvokeModel", run, request)

    def stream(
        self, run: ActiveRun, request: api.StreamModelRequest
    ) -> Iterator[api.StreamModelResponse]:
        """Answers piece by piece."""
        return _pieces(self._answer("StreamModel", run, request))

    def rerank(self, run: ActiveRun, request: api.RerankDocumentsRequest) -> Message:
        """Has no answer of its own: the test gives it."""
        self._find(run, request.model_id)
        raise _unanswered("RerankDocuments")

    def embed(self, run: ActiveRun, request: api.EmbedTextsRequest) -> Message:
        """Has no answer of its own: the test gives it."""
        self._find(run, request.model_id)
        raise _unanswered("EmbedTexts")

    def _find(self, run: ActiveRun, model_id: str) -> _Model | None:
        if all(model.model_id != model_id for model in run.context.resources.models):
            raise not_found("model", model_id)
        return self._models.get(model_id)

    def _answer(self, method: str, run: ActiveRun, request: Any) -> api.InvokeModelResponse:
        model = self._find(run, request.model_id)
        if model is None or not model.answers:
            raise _unanswered(method)
        answer = model.next_answer()
        while callable(answer):
            answer = answer(request)
        match answer:
            case HostCallError():
                raise answer
            case api.InvokeModelResponse():
                return answer
            case str():
                answer = assistant_message([answer])
        reason = "tool_calls" if answer.tool_calls else "stop"
        return api.InvokeModelResponse(message=answer, finish_reason=reason)


def _pieces(answer: api.InvokeModelResponse) -> Iterator[api.StreamModelResponse]:
    message = answer.message
    if message.reasoning_text:
        yield _delta(reasoning_text=message.reasoning_text)
    for part in message.parts:
        for piece in _cut(part.text):
            yield _delta(text=piece)
    for index, call in enumerate(message.tool_calls):
        yield _delta(tool_calls=[api.ToolCallFragment(index=index, id=call.id, name=call.name)])
        for piece in _cut(call.arguments_json):
            yield _delta(tool_calls=[api.ToolCallFragment(index=index, arguments_fragment=piece)])
    end = api.ModelEnd(finish_reason=answer.finish_reason, message=message)
    if answer.HasField("usage"):
        end.usage.CopyFrom(answer.usage)
    yield api.StreamModelResponse(end=end)


def _delta(**fields: Any) -> api.StreamModelResponse:
    return api.StreamModelResponse(delta=api.ModelDelta(**fields))


def _cut(text: str) -> Iterator[str]:
    step = max(1, -(-len(text) // _WORD_PIECES))
    return (text[start : start + step] for start in range(0, len(text), step))


@dataclass(frozen=True, slots=True)
class _Tool:
    resource: context_pb2.ToolResource
    answer: object


class StandInTools:
    """Tools that are functions, or one answer."""

    def __init__(self) -> None:
        self._tools: dict[str, _Tool] = {}

    @property
    def resources(self) -> list[context_pb2.ToolResource]:
        """The tools, as runs are told of them."""
        return [tool.resource for tool in self._tools.values()]

    def add(self, resource: context_pb2.ToolResource, answer: object) -> None:
        """Adds a tool."""
        self._tools[resource.name] = _Tool(resource, answer)

    def detail(
        self, run: ActiveRun, request: api.GetToolDetailRequest
    ) -> api.GetToolDetailResponse:
        """Describes a tool."""
        resource = self._find(run, request.tool_name)
        definition = types_pb2.ToolDefinition(
            name=resource.name,
            description=resource.description,
            parameters_schema_json=resource.parameters_schema_json,
        )
        return api.GetToolDetailResponse(definition=definition, type=resource.type)

    def call(self, run: ActiveRun, request: api.CallToolRequest) -> api.CallToolResponse:
        """Calls a tool; what it raises is an answer with `is_error`."""
        self._find(run, request.tool_name)
        tool = self._tools.get(request.tool_name)
        if tool is None:
            raise _unanswered("CallTool")
        answer = tool.answer
        if callable(answer):
            try:
                answer = answer(from_json(request.parameters_json))
            except HostCallError:
                raise
            except Exception as error:  # noqa: BLE001 - a failing tool is an answer
                text = f"{type(error).__name__}: {error}"
                return make(
                    api.CallToolResponse, parts=[types_pb2.ContentPart(text=text)], is_error=True
                )
        return _tool_response(answer)

    def _find(self, run: ActiveRun, tool_name: str) -> context_pb2.ToolResource:
        for resource in run.context.resources.tools:
            if resource.name == tool_name:
                return resource
        raise not_found("tool", tool_name)


def _tool_response(answer: object) -> api.CallToolResponse:
    match answer:
        case api.CallToolResponse():
            return answer
        case str():
            return api.CallToolResponse(parts=[types_pb2.ContentPart(text=answer)])
    return api.CallToolResponse(result_json=to_json(answer, field="result"))


class StandInKnowledge:
    """Knowledge bases that are lists of passages."""

    def __init__(self) -> None:
        self._hits: dict[str, list[api.KnowledgeHit]] = {}
        self.resources: list[context_pb2.KnowledgeBaseResource] = []

    def add(
        self,
        resource: context_pb2.KnowledgeBaseResource,
        passages: Iterable[str | api.KnowledgeHit],
    ) -> None:
        """Adds a knowledge base."""
        self.resources.append(resource)
        self._hits[resource.knowledge_base_id] = [
            _hit(resource, number, passage) for number, passage in enumerate(passages)
        ]

    def list(
        self, run: ActiveRun, request: api.ListKnowledgeBasesRequest
    ) -> api.ListKnowledgeBasesResponse:
        """Lists the run's knowledge bases by id."""
        entries = sorted(
            (
                resource.knowledge_base_id,
                api.KnowledgeBase(knowledge_base_id=resource.knowledge_base_id, name=resource.name),
            )
            for resource in run.context.resources.knowledge_bases
        )
        found, token = page_of(request, entries)
        return api.ListKnowledgeBasesResponse(knowledge_bases=found, next_page_token=token)

    def retrieve(
        self, run: ActiveRun, request: api.RetrieveKnowledgeRequest
    ) -> api.RetrieveKnowledgeResponse:
        """Finds passages by how many of the query's words are in them."""
        given = [entry.knowledge_base_id for entry in run.context.resources.knowledge_bases]
        for base_id in request.knowledge_base_ids:
            if base_id not in given:
                raise not_found("knowledge base", base_id)
        filters = from_json(request.filters_json) if request.HasField("filters_json") else {}
        words = request.query.casefold().split()
        found = [
            _scored(hit, words)
            for base_id in request.knowledge_base_ids or given
            for hit in self._hits.get(base_id, [])
            if _passes(hit, filters)
        ]
        best = sorted((hit for hit in found if hit.score), key=lambda hit: -hit.score)
        return api.RetrieveKnowledgeResponse(hits=best[: request.top_k or 5])


def _hit(
    resource: context_pb2.KnowledgeBaseResource, number: int, passage: str | api.KnowledgeHit
) -> api.KnowledgeHit:
    if isinstance(passage, api.KnowledgeHit):
        return passage
    return api.KnowledgeHit(
        knowledge_base_id=resource.knowledge_base_id,
        document_id=f"document-{number}",
        document_name=f"document {number}",
        text=passage,
    )


def _scored(hit: api.KnowledgeHit, words: Sequence[str]) -> api.KnowledgeHit:
    if hit.score:
        return hit
    text = hit.text.casefold()
    scored = api.KnowledgeHit()
    scored.CopyFrom(hit)
    scored.score = sum(word in text for word in words) / max(1, len(words))
    return scored


def _passes(hit: api.KnowledgeHit, filters: Mapping[str, Any]) -> bool:
    metadata = from_json(hit.metadata_json) if hit.HasField("metadata_json") else {}
    return all(metadata.get(name) == value for name, value in filters.items())


def _unanswered(method: str) -> HostCallError:
    return refused("NOT_IMPLEMENTED", f"the test has no answer: host.answer({method!r}, ...)")
