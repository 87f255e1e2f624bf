"""One attempt to get a chat model's answer: what comes is read as what it is, asked for or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from host_service.models.answers import Delta
from host_service.models.assembly import AnswerAssembly, read_answer
from host_service.models.client import ProviderClient
from host_service.models.failures import Kind, ProviderFailure, failed
from host_service.models.sse import RecordTooLarge, SseReader

if TYPE_CHECKING:
    import httpx2

PATH = "/chat/completions"
_EVENTS = "text/event-stream"
_WHOLE = ("application/json", "application/problem+json", "text/html")
# A provider that has said its last word ends the answer with it, and the connection can be used
# again; one that does not is not waited for.
_REST_SECONDS = 0.02
_LOST = frozenset({Kind.CUT, Kind.TIMEOUT})


async def read_pieces(
    client: ProviderClient,
    response: httpx2.Response,
    assembly: AnswerAssembly,
    *,
    streamed: bool,
    most_bytes: int,
) -> AsyncGenerator[Delta, None]:
    """Yield the pieces of an answer; when it ends, the assembly has the whole.

    Args:
        client: Reads the answer's body.
        response: The answer.
        assembly: Makes the pieces.
        streamed: Whether it was asked to be streamed.
        most_bytes: How large a record may be.

    Raises:
        ProviderFailure: It is an error, it broke off, or it is no answer.
    """
    if _is_whole(response.headers.get("content-type", ""), streamed=streamed):
        for delta in read_answer(await client.whole(response), assembly):
            yield delta
        return
    async with aclosing(_stream(client, response, assembly, most_bytes)) as deltas:
        async for delta in deltas:
            yield delta
    for delta in assembly.end():
        yield delta


async def _stream(
    client: ProviderClient, response: httpx2.Response, assembly: AnswerAssembly, most_bytes: int
) -> AsyncGenerator[Delta, None]:
    reader = SseReader(most_bytes=most_bytes)
    async with aclosing(client.chunks(response)) as chunks:
        try:
            async for chunk in chunks:
                for record in reader.feed(chunk):
                    for delta in assembly.take(record):
                        yield delta
                    if assembly.is_done:
                        await _let_end(chunks)
                        return
        except RecordTooLarge:
            raise failed(Kind.BAD_ANSWER, f"a record of more than {most_bytes} bytes") from None
        except ProviderFailure as failure:
            # Whatever was to follow the reason of the end, the answer is not it.
            if failure.detail.kind in _LOST and assembly.is_whole:
                return
            raise
    for record in reader.finish():
        for delta in assembly.take(record):
            yield delta


async def _let_end(chunks: AsyncIterator[bytes]) -> None:
    with suppress(TimeoutError, ProviderFailure):
        async with asyncio.timeout(_REST_SECONDS):
            async for _ in chunks:
                pass


def _is_whole(content_type: str, *, streamed: bool) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind != _EVENTS and (not streamed or kind in _WHOLE)
