"""The conversation since the checkpoint, pulled from the host: no more of it than may be told."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import types_pb2
from runmesh.v1.types_pb2 import ChatMessage

from runner_sdk import HostCallError, RunContext
from runner_sdk.errors import InvalidArgument, NotFound

from .checkpoint import Checkpoint
from .history import Passage, Telling, passages_of
from .tokens import messages_tokens

_PAGE = 30


@dataclass(slots=True, kw_only=True)
class Pulled:
    """What is known of the conversation before the turn.

    Attributes:
        checkpoint: What covers the older part; None: nothing does.
        passages: What was said since, oldest first; the newest of it, where there was too much.
        rest: Where that begins which is neither covered nor among the passages; empty: nowhere.
        item_ids: The items that the passages are made of.
    """

    checkpoint: Checkpoint | None = None
    passages: list[Passage] = field(default_factory=list)
    rest: str = ""
    item_ids: set[str] = field(default_factory=set)

    @property
    def hides(self) -> bool:
        """Whether anything was said that no message here has."""
        return self.checkpoint is not None or bool(self.rest)


async def pull(
    ctx: RunContext,
    *,
    checkpoint: Checkpoint | None,
    telling: Telling,
    exchanges: Mapping[str, Sequence[ChatMessage]],
    tokens: int,
) -> Pulled:
    """Returns the newest of what was said since a checkpoint, newest first up to so many tokens.

    Args:
        ctx: The run.
        checkpoint: What covers the older part.
        telling: How items are told.
        exchanges: Calls of tools and their results, by event.
        tokens: When to stop reading.
    """
    access = ctx.proto.context
    if not (access.has_history_before and access.available_apis.history_page):
        return Pulled()
    try:
        items, rest = await _newest(ctx, checkpoint, telling, exchanges, tokens)
    except (NotFound, InvalidArgument):
        if checkpoint is None:
            raise
        # The place of the checkpoint is none of this conversation any more.
        checkpoint = None
        items, rest = await _newest(ctx, None, telling, exchanges, tokens)
    telling = replace(telling, gone=await _gone(ctx, items, telling))
    passages = passages_of(items, telling, exchanges)
    if rest and len(passages) > 1 and items[0].role != types_pb2.CHAT_ROLE_USER:
        # Its question is among what was not read.
        rest = passages.pop(0).cursor
    return Pulled(
        checkpoint=checkpoint,
        passages=passages,
        rest=rest,
        item_ids={item.transcript_id for item in items},
    )


async def pull_rest(
    ctx: RunContext, pulled: Pulled, *, telling: Telling, tokens: int
) -> list[Passage]:
    """Returns the newest of what lies between the checkpoint and what was pulled."""
    if not pulled.rest:
        return []
    items, _ = await _newest(ctx, pulled.checkpoint, telling, {}, tokens, pulled.rest)
    return passages_of(items, telling, {})


async def _gone(
    ctx: RunContext, items: Sequence[api.TranscriptItem], telling: Telling
) -> frozenset[str]:
    """Returns the images that cannot be shown any more: one of them would fail every prompt."""
    refs = [ref for item in items for ref in telling.images(item)]

    async def is_gone(ref: types_pb2.ArtifactRef) -> bool:
        try:
            await ctx.host.artifacts.read_range(ref, 0, 1)
        except HostCallError:
            return True
        return False

    found = await asyncio.gather(*map(is_gone, refs))
    return frozenset(ref.artifact_id for ref, gone in zip(refs, found, strict=True) if gone)


async def _newest(
    ctx: RunContext,
    checkpoint: Checkpoint | None,
    telling: Telling,
    exchanges: Mapping[str, Sequence[ChatMessage]],
    tokens: int,
    at_or_before: str = "",
) -> tuple[list[api.TranscriptItem], str]:
    """Returns items, oldest first, and the cursor of the first one that was too much."""
    items: list[api.TranscriptItem] = []
    counted: set[str] = set()
    async for item in ctx.host.history.iterate(
        at_or_before=at_or_before,
        after=checkpoint.cursor if checkpoint is not None else "",
        page_size=_PAGE,
        include_artifacts=True,
    ):
        message = telling.message(item)
        told = [] if item.event_id in counted else list(exchanges.get(item.event_id, ()))
        counted.add(item.event_id)
        tokens -= messages_tokens([*told, *([message] if message is not None else [])])
        if tokens < 0 and items:
            return items[::-1], item.cursor
        items.append(item)
    return items[::-1], ""
