"""What the model is told before the conversation: the agent's prompt, and what the host adds."""

from collections.abc import Iterable, Sequence

from runmesh.v1.types_pb2 import CHAT_ROLE_SYSTEM, ChatMessage

from runner_sdk import RunContext
from runner_sdk.errors import NotImplementedByHost
from runner_sdk.messages import system_message

from .settings import Settings


async def instructions(ctx: RunContext, settings: Settings) -> list[ChatMessage]:
    """Returns the agent's prompt with the host's fragments among its instructions.

    Nothing of it comes from the event or its adapter. The same configuration and policies give the
    same messages, byte for byte.

    Raises:
        HostCallError: The host did not tell. A run without what its workspace demands of it must
            not go on as if nothing were demanded.
    """
    messages: Sequence[ChatMessage] = settings.prompt
    fragments: list[str] = []
    if ctx.proto.context.available_apis.prompt:
        try:
            package = await ctx.host.prompt.get()
        except NotImplementedByHost:
            pass
        else:
            messages = package.messages or messages
            fragments = [fragment.text for fragment in package.fragments if fragment.text]
    return _joined(messages, fragments)


def _joined(messages: Sequence[ChatMessage], fragments: Iterable[str]) -> list[ChatMessage]:
    """Joins the instructions at the beginning into one message: some models take only one."""
    count = 0
    while count < len(messages) and messages[count].role == CHAT_ROLE_SYSTEM:
        count += 1
    texts = [_text(message) for message in messages[:count]]
    text = "\n\n".join([*filter(None, texts), *fragments])
    return [*([system_message(text)] if text else []), *messages[count:]]


def _text(message: ChatMessage) -> str:
    return "".join(part.text for part in message.parts)
