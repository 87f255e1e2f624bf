"""`runmesh chat`: talk to an agent, by hand or from a script."""

import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from host_service.cli.failures import EXIT_DONE, EXIT_FAILED, CommandError, tell
from host_service.cli.options import (
    AddressOption,
    CaOption,
    CertKeyOption,
    CertOption,
    DataOption,
    InsecureOption,
    Target,
    target,
)

if TYPE_CHECKING:
    import grpc

    from host_service.cli.answering import Answerers
    from host_service.cli.child_host import ChildHost
    from host_service.cli.conversation import Conversation
    from host_service.cli.interrupts import Interrupts

_HISTORY_NAME = "chat_history"
_ADVICE = {"NOT_FOUND": "'runmesh agents list' shows the agents"}
# Refusals that the next line would get as well.
_HOPELESS = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "UNAVAILABLE", "UNIMPLEMENTED"})


def add_to(application: typer.Typer) -> None:
    """Adds the command to the application."""
    application.command()(chat)


def chat(
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="One message. Without it: lines of standard input."),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Ask this agent, whatever the bindings say."),
    ] = None,
    conversation: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Continue this conversation. Without it: a new one."),
    ] = None,
    with_host: Annotated[
        bool,
        typer.Option(
            "--with-host", help="Start a host if none runs, and stop it at the end of the chat."
        ),
    ] = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> int:
    """Talk to an agent.

    On a terminal it asks for messages: Ctrl-C cancels an answer, Ctrl-D leaves. From a pipe each
    line is a message, and standard output has the answers and nothing else. It ends with status 1
    when a run failed.
    """
    if text is not None and not text.strip():
        raise typer.BadParameter("the message is empty", param_hint="TEXT")
    if with_host and address:
        raise typer.BadParameter("has no meaning with --with-host", param_hint="--address")
    host = target(data, address, insecure, ca, cert, cert_key)
    if not with_host:
        return _run(host, None, text, agent, conversation)
    from host_service.cli.child_host import host_for_chat

    with host_for_chat(host.data_folder) as child:
        return _run(host, child, text, agent, conversation)


def _run(
    host: Target,
    child: "ChildHost | None",
    text: str | None,
    agent: str | None,
    conversation: str | None,
) -> int:
    # All of this is imported while a child starts, where there is one.
    import asyncio

    from host_service.cli.answering import Answerers
    from host_service.cli.answers import console_writer
    from host_service.cli.connection import connect, locate
    from host_service.cli.conversation import Conversation, speaker
    from host_service.cli.interrupts import Interrupts

    if child is not None and not child.wait_until_ready():
        child = None
    endpoint = locate(host)
    who = speaker(agent_id=agent, conversation_id=conversation)

    async def talk() -> int:
        interrupts = Interrupts()
        with interrupts.installed():
            try:
                async with connect(endpoint) as connection:
                    talking = Conversation(
                        connection=connection,
                        speaker=who,
                        interrupts=interrupts,
                        make_writer=console_writer,
                    )
                    session = _Chat(
                        conversation=talking,
                        answerers=Answerers(connection, agent or ""),
                        interrupts=interrupts,
                        target=host,
                        child=child,
                    )
                    return await session.hold(text, who.conversation_id)
            except asyncio.CancelledError:
                if interrupts.received is None:
                    raise
                return interrupts.exit_status

    return asyncio.run(talk())


class _Chat:
    """One chat, in whichever of its forms.

    Args:
        conversation: Sends messages and shows answers.
        answerers: Tells who answers.
        interrupts: Tells whether a signal came.
        target: The host, for what is said when it is gone.
        child: The host's process, when this chat started it.
    """

    def __init__(
        self,
        *,
        conversation: "Conversation",
        answerers: "Answerers",
        interrupts: "Interrupts",
        target: Target,
        child: "ChildHost | None",
    ) -> None:
        self._conversation = conversation
        self._answerers = answerers
        self._interrupts = interrupts
        self._target = target
        self._child = child

    async def hold(self, text: str | None, conversation_id: str) -> int:
        """Sends what there is to send; returns the exit status."""
        if text is not None:
            return await self._send_once(_decoded(text))
        if sys.stdin is None:
            raise CommandError("standard input is closed", "give the message as an argument")
        if sys.stdin.isatty() and sys.stdout.isatty():
            return await self._send_typed(conversation_id)
        return await self._send_lines()

    async def _send_once(self, text: str) -> int:
        failure = await self._say(text)
        if failure is not None:
            tell(str(failure))
        if self._interrupts.received is not None:
            return self._interrupts.exit_status
        return EXIT_DONE if failure is None else EXIT_FAILED

    async def _send_lines(self) -> int:
        from host_service.cli.line_input import read_lines

        status = EXIT_DONE
        async for line in read_lines(sys.stdin.fileno()):
            if line.fault:
                tell(f"line {line.number} {line.fault}")
            if line.text is None:
                status = EXIT_FAILED
            elif line.text.strip():
                status = max(status, await self._send_once(line.text))
            if self._interrupts.received is not None:
                break
        return status

    async def _send_typed(self, conversation_id: str) -> int:
        from host_service.cli.answers import console_writer
        from host_service.cli.prompt import MessagePrompt

        remembered = self._target.address is None
        prompt = MessagePrompt(self._target.data_folder / _HISTORY_NAME if remembered else None)
        console_writer().remark(
            f"Ctrl-C cancels an answer, Ctrl-D leaves; this is conversation {conversation_id}"
        )
        expected = await self._answerers.expected()
        if expected:
            console_writer().remark(expected)
        while (text := await prompt.ask()) is not None:
            if not text.strip():
                continue
            failure = await self._say(_decoded(text))
            if failure is not None:
                tell(str(failure))
            if self._interrupts.received not in {None, signal.SIGINT}:
                return self._interrupts.exit_status
            # The run it was meant for has ended, and the chat goes on.
            self._interrupts.received = None
        return EXIT_DONE

    async def _say(self, text: str) -> CommandError | None:
        """Sends a message; returns what there is to say when it did not go well.

        Raises:
            CommandError: Nothing that is sent after it would go well either.
        """
        import grpc

        from host_service.cli.answers import console_writer
        from host_service.cli.conversation import outcome

        try:
            run = await self._conversation.say(text)
            told = await self._answerers.of(run)
            if told:
                console_writer().remark(told)
            return outcome(run)
        except grpc.aio.AioRpcError as error:
            failure = self._explain(error)
            if error.code().name in _HOPELESS:
                raise failure from error
            return failure

    def _explain(self, error: "grpc.aio.AioRpcError") -> CommandError:
        from host_service.cli.connection import failure

        if self._child is not None and self._child.has_ended():
            return self._child.explain_end()
        return failure(error, self._target, _ADVICE)


def _decoded(text: str) -> str:
    """An argument's text; bytes in it that are not UTF-8 become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
