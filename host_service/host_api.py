"""HostAPIService: what a run's runner may ask of the host.

The tokens of each call are checked on its way in, everything else by the gate; what is done is done
by a capability. A call that this host does not offer is answered NOT_IMPLEMENTED, and only to a run
that exists.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from runmesh.v1 import host_api_pb2 as pb
from runmesh.v1 import host_api_pb2_grpc

from host_service.capabilities.gate import Gate
from host_service.capabilities.offered import Capabilities
from host_service.interceptors import Context, current_access, refuse_missing
from stores import Stores


@refuse_missing
class HostAPIServicer(host_api_pb2_grpc.HostAPIServiceServicer):
    """Every call of the contract, by the capabilities that this host has.

    Args:
        gate: Checks every call.
        capabilities: Do what is asked.
        over: Gives capabilities that work on other stores, for runs that have their own: what a
            replay does is done on what it sees, and stays there.
    """

    def __init__(
        self, *, gate: Gate, capabilities: Capabilities, over: Callable[[Stores], Capabilities]
    ) -> None:
        self._gate = gate
        self._capabilities = capabilities
        self._over = over

    @property
    def _offered(self) -> Capabilities:
        """What is offered to the run whose runner calls."""
        stores = current_access().stores
        return self._capabilities if stores is None else self._over(stores)

    async def InvokeModel(
        self, request: pb.InvokeModelRequest, context: Context
    ) -> pb.InvokeModelResponse:
        """Ask a model once."""
        work = self._offered.models.invoke
        return await self._gate.answer("InvokeModel", current_access(), request, work)

    # What streams is written rather than yielded: its code ends with the call, not some time after.
    async def StreamModel(  # type: ignore[override]
        self, request: pb.StreamModelRequest, context: Context
    ) -> None:
        """Ask a model and stream its answer."""
        work = self._offered.models.stream
        await self._gate.stream("StreamModel", current_access(), request, work, context.write)

    async def RerankDocuments(
        self, request: pb.RerankDocumentsRequest, context: Context
    ) -> pb.RerankDocumentsResponse:
        """Order documents by their relevance."""
        work = self._offered.models.rerank
        return await self._gate.answer("RerankDocuments", current_access(), request, work)

    async def EmbedTexts(
        self, request: pb.EmbedTextsRequest, context: Context
    ) -> pb.EmbedTextsResponse:
        """Turn texts into vectors."""
        work = self._offered.models.embed
        return await self._gate.answer("EmbedTexts", current_access(), request, work)

    async def GetToolDetail(
        self, request: pb.GetToolDetailRequest, context: Context
    ) -> pb.GetToolDetailResponse:
        """Describe a tool."""
        work = self._offered.tools.detail
        return await self._gate.answer("GetToolDetail", current_access(), request, work)

    async def CallTool(self, request: pb.CallToolRequest, context: Context) -> pb.CallToolResponse:
        """Call a tool."""
        work = self._offered.tools.call
        return await self._gate.answer("CallTool", current_access(), request, work)

    async def ListKnowledgeBases(
        self, request: pb.ListKnowledgeBasesRequest, context: Context
    ) -> pb.ListKnowledgeBasesResponse:
        """List the knowledge bases of the run."""
        work = self._offered.knowledge.list
        return await self._gate.answer("ListKnowledgeBases", current_access(), request, work)

    async def RetrieveKnowledge(
        self, request: pb.RetrieveKnowledgeRequest, context: Context
    ) -> pb.RetrieveKnowledgeResponse:
        """Search knowledge bases."""
        work = self._offered.knowledge.retrieve
        return await self._gate.answer("RetrieveKnowledge", current_access(), request, work)

    async def PageHistory(  # type: ignore[override]
        self, request: pb.PageHistoryRequest, context: Context
    ) -> bytes:
        """Page through the transcript; the answer is encoded."""
        work = self._offered.history.page
        return await self._gate.answer("PageHistory", current_access(), request, work)

    async def SearchHistory(  # type: ignore[override]
        self, request: pb.SearchHistoryRequest, context: Context
    ) -> bytes:
        """Search the transcript; the answer is encoded."""
        work = self._offered.history.search
        return await self._gate.answer("SearchHistory", current_access(), request, work)

    async def GetEvent(self, request: pb.GetEventRequest, context: Context) -> pb.GetEventResponse:
        """Read one event."""
        work = self._offered.events.get
        return await self._gate.answer("GetEvent", current_access(), request, work)

    async def PageEvents(
        self, request: pb.PageEventsRequest, context: Context
    ) -> pb.PageEventsResponse:
        """Page through events."""
        work = self._offered.events.page
        return await self._gate.answer("PageEvents", current_access(), request, work)

    async def GetArtifactMetadata(
        self, request: pb.GetArtifactMetadataRequest, context: Context
    ) -> pb.GetArtifactMetadataResponse:
        """Describe an artifact."""
        work = self._offered.artifacts.describe
        return await self._gate.answer("GetArtifactMetadata", current_access(), request, work)

    async def ReadArtifact(
        self, request: pb.ReadArtifactRequest, context: Context
    ) -> pb.ReadArtifactResponse:
        """Read one range of an artifact."""
        work = self._offered.artifacts.read
        return await self._gate.answer("ReadArtifact", current_access(), request, work)

    async def StreamArtifact(  # type: ignore[override]
        self, request: pb.StreamArtifactRequest, context: Context
    ) -> None:
        """Stream an artifact."""
        work = self._offered.artifacts.stream
        await self._gate.stream("StreamArtifact", current_access(), request, work, context.write)

    async def CreateArtifact(
        self, request_iterator: AsyncIterator[pb.CreateArtifactRequest], context: Context
    ) -> pb.CreateArtifactResponse:
        """Store an artifact."""
        work = self._offered.artifacts.create
        return await self._gate.take_in(
            "CreateArtifact",
            current_access(),
            request_iterator,
            work,
            is_plain=self._offered.artifacts.is_chunk,
        )

    async def GetState(self, request: pb.GetStateRequest, context: Context) -> pb.GetStateResponse:
        """Read a value of state."""
        work = self._offered.state.get
        return await self._gate.answer("GetState", current_access(), request, work)

    async def SetState(self, request: pb.SetStateRequest, context: Context) -> pb.SetStateResponse:
        """Write a value of state."""
        work = self._offered.state.set
        return await self._gate.answer("SetState", current_access(), request, work)

    async def DeleteState(
        self, request: pb.DeleteStateRequest, context: Context
    ) -> pb.DeleteStateResponse:
        """Remove a value of state."""
        work = self._offered.state.delete
        return await self._gate.answer("DeleteState", current_access(), request, work)

    async def ListState(
        self, request: pb.ListStateRequest, context: Context
    ) -> pb.ListStateResponse:
        """List values of state."""
        work = self._offered.state.list
        return await self._gate.answer("ListState", current_access(), request, work)

    async def GetStorage(
        self, request: pb.GetStorageRequest, context: Context
    ) -> pb.GetStorageResponse:
        """Read a value of storage."""
        work = self._offered.storage.get
        return await self._gate.answer("GetStorage", current_access(), request, work)

    async def SetStorage(
        self, request: pb.SetStorageRequest, context: Context
    ) -> pb.SetStorageResponse:
        """Store a value."""
        work = self._offered.storage.set
        return await self._gate.answer("SetStorage", current_access(), request, work)

    async def DeleteStorage(
        self, request: pb.DeleteStorageRequest, context: Context
    ) -> pb.DeleteStorageResponse:
        """Remove a value of storage."""
        work = self._offered.storage.delete
        return await self._gate.answer("DeleteStorage", current_access(), request, work)

    async def ListStorage(
        self, request: pb.ListStorageRequest, context: Context
    ) -> pb.ListStorageResponse:
        """List keys of storage."""
        work = self._offered.storage.list
        return await self._gate.answer("ListStorage", current_access(), request, work)

    async def GetPrompt(
        self, request: pb.GetPromptRequest, context: Context
    ) -> pb.GetPromptResponse:
        """Read the run's instructions."""
        work = self._offered.prompt.get
        return await self._gate.answer("GetPrompt", current_access(), request, work)

    async def RequestAction(
        self, request: pb.RequestActionRequest, context: Context
    ) -> pb.RequestActionResponse:
        """Ask for an action."""
        work = self._offered.actions.request
        return await self._gate.answer("RequestAction", current_access(), request, work)

    async def PullSteering(  # type: ignore[override]
        self, request: pb.PullSteeringRequest, context: Context
    ) -> None:
        """Stream what comes for the run while it is under way."""
        work = self._offered.steering.pull
        await self._gate.stream("PullSteering", current_access(), request, work, context.write)

    async def AcknowledgeSteering(
        self, request: pb.AcknowledgeSteeringRequest, context: Context
    ) -> pb.AcknowledgeSteeringResponse:
        """Take note of what the run took up."""
        work = self._offered.steering.acknowledge
        return await self._gate.answer("AcknowledgeSteering", current_access(), request, work)
