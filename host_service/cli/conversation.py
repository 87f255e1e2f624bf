"""One conversation with an agent: each message becomes an event, and its run is followed."""

import asyncio
import getpass
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from runmesh.v1 import event_pb2, gateway_pb2

from host_service.cli.answers import AnswerWriter
from host_service.cli.connection import CANCEL_SECONDS, HostConnection
from host_service.cli.failures import CommandError
from host_service.cli.following import dispatch
from host_service.cli.interrupts import Interrupts


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who talks, with whom, where.

    Attributes:
        name: The person's name on this machine.
        agent_id: The agent; empty lets the bindings choose.
        conversation_id: What the messages belong to together.
    """

    name: str
    agent_id: str
    conversation_id: str


def speaker(*, agent_id: str | None, conversation_id: str | None) -> Speaker:
    """The person at this terminal; a conversation that is not named is a new one."""
    return Speaker(
        name=_user_name(),
        agent_id=agent_id or "",
        conversation_id=conversation_id or f"chat-{uuid.uuid4()}",
    )


class Conversation:
    """Sends messages one after the other and shows what comes back.

    Args:
        connection: The host.
        speaker: Who talks, with whom, where.
        interrupts: Where Ctrl-C and its like arrive: they cancel the run under way.
        make_writer: Makes what shows the results of one run.
    """

    def __init__(
        self,
        *,
        connection: HostConnection,
        speaker: Speaker,
        interrupts: Interrupts,
        make_writer: Callable[[], AnswerWriter],
    ) -> None:
        self._connection = connection
        self._speaker = speaker
        self._interrupts = interrupts
        self._make_writer = make_writer

    async def say(self, text: str) -> gateway_pb2.Run:
        """Sends a message, shows the answer as it comes, and returns the ended run.

        A signal cancels the run, and the rest is shown until it has ended; a second one stops
        waiting for that.

        Raises:
            grpc.aio.AioRpcError: The host refused the message, or was lost.
            asyncio.CancelledError: A second signal came.
            BrokenPipeError: Nobody reads the answer any more; the run was cancelled.
        """
        turn = _Turn(connection=self._connection, writer=self._make_writer())
        following = asyncio.ensure_future(turn.follow(self._request(text)))
        with self._interrupts.taken_by(lambda: turn.interrupt(following)):
            try:
                return await following
            except BrokenPipeError:
                await turn.cancel_run("the reader of the answer went away")
                raise
            finally:
                await turn.settle()

    def _request(self, text: str) -> gateway_pb2.DispatchRequest:
        name = self._speaker.name
        request = gateway_pb2.DispatchRequest(
            agent_id=self._speaker.agent_id,
            event=event_pb2.EventEnvelope(
                # Ours, so that a repeated call cannot start a second run.
                event_id=str(uuid.uuid4()),
                type="message.received",
                conversation_id=self._speaker.conversation_id,
                actor=event_pb2.Actor(type="user", id=name, name=name),
                input=event_pb2.EventInput(text=text),
                delivery=event_pb2.DeliveryContext(surface="console", supports_streaming=True),
            ),
        )
        request.event.time.GetCurrentTime()
        return request


class _Turn:
    """One message and its run."""

    def __init__(self, *, connection: HostConnection, writer: AnswerWriter) -> None:
        self._connection = connection
        self._writer = writer
        self._run_id = ""
        self._interrupted = False
        self._cancelling: asyncio.Task[None] | None = None

    async def follow(self, request: gateway_pb2.DispatchRequest) -> gateway_pb2.Run:
        try:
            async for item in dispatch(self._connection, request):
                kind = item.WhichOneof("item")
                if kind == "accepted":
                    self._run_id = item.accepted.run_id
                    if self._interrupted:
                        self._start_cancelling()
                elif kind == "results":
                    for result in item.results.results:
                        self._writer.show(result)
                elif kind == "ended":
                    return item.ended
        finally:
            self._writer.end()
        raise CommandError(f"the host ended the stream of run {self._run_id} before the run ended")

    def interrupt(self, following: "asyncio.Future[gateway_pb2.Run]") -> None:
        """Cancels the run; when that was asked before, stops waiting for its end."""
        if self._interrupted:
            following.cancel()
        elif self._run_id:
            self._start_cancelling()
        self._interrupted = True

    async def cancel_run(self, reason: str) -> None:
        request = gateway_pb2.CancelRunRequest(run_id=self._run_id, reason=reason)
        await self._connection.gateway.CancelRun(
            request, metadata=self._connection.metadata, timeout=CANCEL_SECONDS
        )

    async def settle(self) -> None:
        """Ends what is still under way for this message."""
        if self._cancelling is None:
            return
        self._cancelling.cancel()
        await asyncio.gather(self._cancelling, return_exceptions=True)

    def _start_cancelling(self) -> None:
        async def cancel() -> None:
            try:
                await self.cancel_run("interrupted at the terminal")
            except grpc.aio.AioRpcError as error:
                self._writer.remark(f"the run could not be cancelled: {error.details()}")

        self._cancelling = asyncio.ensure_future(cancel())


def outcome(run: gateway_pb2.Run) -> CommandError | None:
    """What to say about a run that did not end well; None for one that did."""
    if run.status == gateway_pb2.RUN_STATUS_COMPLETED or run.steered_into:
        return None
    if run.status == gateway_pb2.RUN_STATUS_CANCELLED:
        return CommandError(f"run {run.run_id} was cancelled")
    advice = f"'runmesh runs show {run.run_id}' shows more"
    failure = f"{run.failure.code}: {run.failure.message}".rstrip(".: ")
    if run.failure.retryable:
        advice = f"the same message may succeed later; {advice}"
    return CommandError(f"the run failed: {failure or 'it does not say why'}", advice)


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a user id that has no name.
        return f"uid-{os.getuid()}"
