"""Embeddings and rerank, in the spellings of those who serve them."""

import array
import base64
import math
from typing import Any

import pytest

from host_service.errors import HostError, InvalidArgument
from host_service.models.answers import Usage
from tests.integration.models.asking import Asking
from tests.integration.models.torture_server import (
    Reply,
    Request,
    TortureServer,
    json_reply,
    vectors,
)


def length_of(request: Request) -> Reply:
    """Answer each text with its length."""
    values = [[float(len(text)), 1.0] for text in request.body["input"]]
    return vectors(values, usage={"prompt_tokens": len(values), "total_tokens": len(values)})


async def test_texts_go_in_batches_and_come_back_in_order(
    server: TortureServer, asking: Asking
) -> None:
    asking.limit(embedding_batch_texts=4)
    server.answer(length_of)
    texts = ["x" * length for length in range(1, 11)]
    found = await asking.calls.vectors("embedding", texts)
    assert [each[0] for each in found.values] == [float(len(text)) for text in texts]
    assert found.usage == Usage(model_id="embedding", input_tokens=10)
    assert [len(each.body["input"]) for each in server.requests] == [4, 4, 2]
    assert {each.body["model"] for each in server.requests} == {"embedding-model"}


async def test_batch_that_a_provider_refuses_goes_in_halves(
    server: TortureServer, asking: Asking
) -> None:
    def few(request: Request) -> Reply:
        if len(request.body["input"]) > 3:
            return json_reply({"error": {"message": "batch size"}}, status=400)
        return length_of(request)

    server.answer(few)
    texts = ["x" * length for length in range(1, 11)]
    for _ in range(2):
        found = await asking.calls.embed("embedding", texts)
        assert [each[0] for each in found] == [float(len(text)) for text in texts]
    sizes = [len(each.body["input"]) for each in server.requests]
    # It is remembered how many go.
    assert max(sizes[-4:]) <= 3


async def test_order_is_by_index_and_numbers_may_be_packed(
    server: TortureServer, asking: Asking
) -> None:
    packed = base64.b64encode(array.array("f", [0.5, -2.0]).tobytes()).decode()
    entries = [{"index": 1, "embedding": packed}, {"index": 0, "embedding": [1, 2.5]}]
    server.answer(json_reply({"data": entries}))
    found = await asking.calls.vectors("embedding", ["a", "b"])
    assert [list(each) for each in found.values] == [[1.0, 2.5], [0.5, -2.0]]
    assert found.usage is None


async def test_nothing_is_asked_for_nothing(server: TortureServer, asking: Asking) -> None:
    assert await asking.calls.embed("embedding", []) == []
    assert list((await asking.calls.rank("rerank", "q", [])).places) == []
    assert not server.requests


@pytest.mark.parametrize(
    "content",
    [
        {"data": [{"embedding": [1.0]}]},
        {"data": [{"embedding": [1.0]}, {"embedding": [1.0, 2.0]}]},
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 2, "embedding": [1.0]}]},
        {"data": [{"embedding": [1.0]}, {"embedding": []}]},
        {"data": [{"embedding": [1.0]}, {"embedding": ["1"]}]},
        {"data": [{"embedding": [1.0]}, {"embedding": [math.nan]}]},
        {"data": [{"embedding": [1.0]}, {"embedding": "no base64!"}]},
        {"data": [{"embedding": [1.0]}, {"embedding": "AAAA"}]},
        {"data": None},
        [],
    ],
)
async def test_vectors_that_are_none_are_refused(
    server: TortureServer, asking: Asking, content: object
) -> None:
    server.answer(json_reply(content))
    with pytest.raises(HostError) as raised:
        await asking.calls.embed("embedding", ["a", "b"])
    assert raised.value.facts["model_error"] == "bad_answer"


async def test_vectors_of_batches_must_be_of_one_length(
    server: TortureServer, asking: Asking
) -> None:
    asking.limit(embedding_batch_texts=1)
    server.answer(vectors([[1.0]]), vectors([[1.0, 2.0]]))
    with pytest.raises(HostError):
        await asking.calls.embed("embedding", ["a", "b"])


async def test_embedding_is_tried_again(server: TortureServer, asking: Asking) -> None:
    server.answer(json_reply({}, status=503, retry_after_ms="1"), length_of)
    assert await asking.calls.embed("embedding", ["abc"]) == [[3.0, 1.0]]


RESULTS = [(1, 0.9), (0, 0.4), (2, -1.5)]


@pytest.mark.parametrize(
    "content",
    [
        {"results": [{"index": i, "relevance_score": s} for i, s in RESULTS]},
        {
            "results": [
                {"index": i, "relevance_score": s, "document": {"text": "t"}} for i, s in RESULTS
            ]
        },
        [{"index": i, "score": s} for i, s in RESULTS],
        {"data": [{"index": i, "relevance_score": s} for i, s in reversed(RESULTS)]},
        {"results": [{"index": i, "score": s} for i, s in sorted(RESULTS)]},
    ],
    ids=["cohere", "jina", "tei", "voyage", "unordered"],
)
async def test_ranking_in_every_spelling(
    server: TortureServer, asking: Asking, content: Any
) -> None:
    server.answer(json_reply(content))
    ranking = await asking.calls.rank("rerank", "q", ["a", "b", "c"])
    assert list(ranking.places) == RESULTS
    (request,) = server.requests
    assert request.path == "/v1/rerank"
    assert request.body == {"model": "rerank-model", "query": "q", "documents": ["a", "b", "c"]}
    best = await asking.calls.rank("rerank", "q", ["a", "b", "c"], top_k=2)
    assert list(best.places) == RESULTS[:2]
    assert server.requests[1].body["top_n"] == 2


async def test_provider_that_has_texts_gets_texts(server: TortureServer, asking: Asking) -> None:
    def tei(request: Request) -> Reply:
        if "texts" not in request.body:
            return json_reply({"error": "missing field `texts`"}, status=422)
        return json_reply([{"index": 0, "score": 0.5}])

    server.answer(tei)
    assert list((await asking.calls.rank("rerank", "q", ["a"])).places) == [(0, 0.5)]


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ({"usage": {"total_tokens": 7}}, 7),
        ({"usage": {"prompt_tokens": 5, "total_tokens": 7}}, 5),
        ({"meta": {"tokens": {"input_tokens": 3}}}, 3),
        ({}, None),
    ],
)
async def test_cost_of_a_ranking(
    server: TortureServer, asking: Asking, content: dict[str, Any], tokens: int | None
) -> None:
    results = [{"index": 0, "score": 0.5}]
    server.answer(json_reply({"results": results, **content}))
    usage = (await asking.calls.rank("rerank", "q", ["a"])).usage
    assert usage == (None if tokens is None else Usage(model_id="rerank", input_tokens=tokens))


@pytest.mark.parametrize(
    "content",
    [
        {"results": [{"index": 3, "score": 1}]},
        {"results": [{"index": 0, "score": 1}, {"index": 0, "score": 1}]},
        {"results": [{"index": 0, "score": math.inf}]},
        {"results": [{"index": 0}]},
        {"results": None},
        {},
    ],
)
async def test_rankings_that_are_none_are_refused(
    server: TortureServer, asking: Asking, content: object
) -> None:
    server.answer(json_reply(content))
    with pytest.raises(HostError) as raised:
        await asking.calls.rank("rerank", "q", ["a", "b"])
    assert raised.value.facts["model_error"] == "bad_answer"


async def test_option_cannot_take_the_place_of_what_is_asked(asking: Asking) -> None:
    asking.change("rerank", options_json='{"query": "another"}')
    with pytest.raises(InvalidArgument):
        await asking.calls.rank("rerank", "q", ["a"])
