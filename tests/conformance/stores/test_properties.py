"""Properties that hold for all texts, all interleavings of writers and readers, all page sizes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from stores import Stores
from stores.records import Failure, RunFacts, RunStatus, RunWarning, Usage
from tests.conformance.stores.examples import EXAMPLES, KEYS, TEXTS, holds_for_all_examples
from tests.conformance.stores.samples import (
    NOON,
    a_checkpoint,
    a_result,
    a_run,
    accepted,
    an_agent,
    an_end,
    an_entry,
    an_event,
    an_item,
)

# Bounded, so that the writers of an example are done in a moment.
BATCHES = st.lists(st.integers(1, 5), min_size=1, max_size=6)
WRITERS = st.lists(BATCHES, min_size=1, max_size=4)


async def test_whatever_writers_do_readers_page_through_each_item_once_in_order(
    stores: Stores,
) -> None:
    examples = count()

    async def write(run_id: str, talk: str, writer: int, batches: Sequence[int]) -> None:
        for batch, size in enumerate(batches):
            name = f"{run_id}-{writer}-{batch}"
            items = (
                an_item(f"{name}-{each}", conversation_key=talk, text=f"{writer} {batch} {each}")
                for each in range(size)
            )
            await stores.ledger.record(RunFacts(run_id=run_id, items=tuple(items)))

    async def read_forward(talk: str, total: int, limit: int) -> list[str | None]:
        texts: list[str | None] = []
        last = 0
        while last < total:
            page = await stores.transcript.page(talk, after=last, limit=limit, newest_first=False)
            positions = [item.position for item in page.items]
            assert positions == list(range(last + 1, last + len(positions) + 1))
            last += len(positions)
            texts += [item.text for item in page.items]
        return texts

    async def read_backward(talk: str, limit: int) -> None:
        before = None
        expected = await stores.transcript.latest_position(talk) or 0
        while expected:
            page = await stores.transcript.page(
                talk, before=before, limit=limit, at_or_before=expected
            )
            positions = [item.position for item in page.items]
            assert positions == list(range(expected, expected - len(positions), -1))
            expected -= len(positions)
            before = page.next_cursor
            assert (before is None) == (expected == 0)

    @EXAMPLES
    @given(writers=WRITERS, limit=st.integers(1, 12))
    async def holds(writers: list[list[int]], limit: int) -> None:
        run_id = f"run-{next(examples)}"
        talk = f"talk of {run_id}"
        await accepted(stores, run_id, conversation_key=talk)
        total = sum(map(sum, writers))
        reading = asyncio.gather(
            read_forward(talk, total, limit), read_forward(talk, total, limit + 1)
        )
        await asyncio.gather(
            *(write(run_id, talk, number, batches) for number, batches in enumerate(writers)),
            *(read_backward(talk, limit) for _ in range(2)),
        )
        first, second = await reading
        assert first == second
        for number, batches in enumerate(writers):
            # What one writer wrote stands in its order, and what it wrote together, together.
            written = [
                f"{number} {batch} {each}"
                for batch, size in enumerate(batches)
                for each in range(size)
            ]
            assert [text for text in first if text and text.startswith(f"{number} ")] == written
        await read_backward(talk, limit)

    await holds_for_all_examples(holds)


async def test_any_text_and_bytes_come_back_from_every_record_of_a_run(stores: Stores) -> None:
    examples = count()

    @EXAMPLES
    @given(text=TEXTS, key=KEYS, content=st.binary(max_size=200))
    async def holds(text: str, key: str, content: bytes) -> None:
        run_id = f"run-{next(examples)}"
        talk = f"{run_id} {key}"
        event = an_event(
            f"event {talk}"[:255], conversation_key=talk, envelope=content, input_summary=text
        )
        run = a_run(run_id, event, agent_snapshot=content)
        item = an_item(f"item of {run_id}", conversation_key=talk, text=text, content=content)
        await stores.ledger.accept(event, run, item).committed
        result = a_result(run_id, 1, payload=content)
        checkpoint = a_checkpoint(run_id, text=text, reasoning=text)
        facts = RunFacts(
            run_id=run_id,
            results=(result,),
            entries=(an_entry(run_id, payload=content),),
            checkpoints=(checkpoint,),
            warnings=(RunWarning("code", text, NOON),),
            usage=(Usage(key, 1, 2),),
        )
        await stores.ledger.record(facts)
        assert await stores.ledger.results(run_id) == [result]
        assert await stores.ledger.checkpoints(run_id) == [checkpoint]
        assert [each.payload for each in await stores.events.entries(run_id)] == [content]
        assert await stores.events.get_for_run(run_id) == replace(event, run_id=run_id)
        assert (await stores.transcript.page(talk)).items == (replace(item, position=1),)
        failure = Failure("code", text, details={text: text})
        await stores.ledger.finish(an_end(run_id, status=RunStatus.FAILED, failure=failure))
        ended = await stores.ledger.get(run_id)
        assert ended is not None
        assert ended.failure == failure
        assert ended.agent_snapshot == content
        assert [warning.message for warning in ended.warnings] == [text]
        assert ended.usage == (Usage(key, 1, 2),)
        await stores.catalogue.put_agent(an_agent(name=text, document=text))
        agent = await stores.catalogue.get_agent("agent")
        assert agent is not None
        assert (agent.name, agent.document) == (text, text)

    await holds_for_all_examples(holds)
