"""How well the passage that answers a question is found, in English and Chinese.

Recall at 5: of how many questions the document that answers is among the first five passages. The
vectors are those of a real model that knows English, asked over HTTP as any provider is; of Chinese
it knows next to nothing, and must not spoil what is found by words.
"""

import asyncio
import tomllib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from host_service.catalogue.documents import Catalogued, item_of
from host_service.catalogue.knowledge_base import KnowledgeBase
from host_service.catalogue.shelf import Shelf
from host_service.knowledge.desk import KnowledgeDesk
from host_service.knowledge.ingest import IncomingDocument, Step
from stores import Stores
from tests.integration.knowledge.conftest import LIMITS
from tests.integration.models.asking import Asking
from tests.integration.models.torture_server import Reply, Request, TortureServer, vectors
from tests.minilm import MiniLM

CORPUS = Path(__file__).with_name("corpus")
TOP_K = 5


@dataclass(frozen=True)
class Question:
    """A question, its language, and the document that answers it."""

    text: str
    language: str
    document: str


def documents() -> Mapping[str, str]:
    read = tomllib.loads((CORPUS / "documents.toml").read_text("utf-8"))["documents"]
    return {f"{name}.md": text for texts in read.values() for name, text in texts.items()}


def questions() -> list[Question]:
    read = tomllib.loads((CORPUS / "questions.toml").read_text("utf-8"))["questions"]
    return [
        Question(text, language, f"{document}.md")
        for language, answers in read.items()
        for text, document in answers.items()
    ]


class Remembered:
    """The model, with what it said: both databases ask for the same."""

    def __init__(self) -> None:
        self._model = MiniLM()
        self._said: dict[str, list[float]] = {}

    def reply(self, request: Request) -> Reply:
        for text in request.body["input"]:
            if text not in self._said:
                [self._said[text]] = self._model.embed([text])
        return vectors([self._said[text] for text in request.body["input"]])


@pytest.fixture(scope="module")
def minilm() -> Remembered:
    return Remembered()


@pytest.fixture
async def desk(stores: Stores, minilm: Remembered) -> AsyncIterator[KnowledgeDesk]:
    """Two knowledge bases with the corpus: `text`, and `vectors` with a model."""
    async with TortureServer().serving() as server:
        server.answer(minilm.reply)
        asking = Asking(server)
        things: list[Catalogued] = [
            *asking.models.values(),
            KnowledgeBase(id="text"),
            KnowledgeBase(id="vectors", embedding_model="embedding"),
        ]
        await stores.catalogue.apply([], [], [item_of(each) for each in things])
        made = KnowledgeDesk(
            store=stores.knowledge,
            embedder=asking.calls,
            shelf=lambda: Shelf.of(map(item_of, things)),
            limits=LIMITS,
            vectors_wanted=asyncio.Event(),
        )
        yield made
        await made.close()
        await asking.calls.close()


async def fill(desk: KnowledgeDesk) -> None:
    for base in (
        KnowledgeBase(id="text"),
        KnowledgeBase(id="vectors", embedding_model="embedding"),
    ):
        for document_id, text in documents().items():
            incoming = IncomingDocument(
                document_id=document_id,
                name=document_id,
                source="",
                mime_type="",
                metadata_json="{}",
                content=text.encode(),
            )
            *_, last = [each async for each in desk.ingest.add(base, incoming)]
            assert (last.step, last.vectors_missing) == (Step.READY, "")


async def recall(desk: KnowledgeDesk, base: str) -> dict[str, float]:
    """Return the share of questions whose answer is found, by language."""
    found: dict[str, list[bool]] = {"en": [], "zh": []}
    for question in questions():
        answer = await desk.retrieval.search([base], question.text, top_k=TOP_K)
        assert answer.vectors_missing == ""
        ids = [hit.document.document_id for hit in answer.hits]
        found[question.language].append(question.document in ids)
    return {language: sum(each) / len(each) for language, each in found.items()}


def test_corpus_is_what_it_says() -> None:
    assert len(documents()) == 40
    assert len(questions()) == 60
    assert {each.document for each in questions()} == documents().keys()


def test_model_knows_what_means_the_same(minilm: Remembered) -> None:
    texts = ["A man is eating food.", "Someone has a meal.", "The stock market fell sharply."]
    eating, meal, market = minilm._model.embed(texts)
    alike = sum(a * b for a, b in zip(eating, meal, strict=True))
    unlike = sum(a * b for a, b in zip(eating, market, strict=True))
    assert alike > 0.5 > 0.2 > unlike
    assert sum(a * a for a in eating) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.timeout(900)
async def test_answers_are_among_the_first_five(
    desk: KnowledgeDesk, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(desk)
    text, both = await recall(desk, "text"), await recall(desk, "vectors")
    with capsys.disabled():
        told = f"recall at {TOP_K}: text alone {text}, with vectors {both}"
        print(f"\n{told}")  # noqa: T201 - the measure is to be seen
    # Measured: 0.38 and 0.85 by text alone, since the questions have hardly a word of the answers;
    # 1.00 and 0.88 with vectors. A margin is left for what is close.
    assert text["en"] >= 0.33
    assert text["zh"] >= 0.79
    assert both["en"] >= 0.94
    assert both["zh"] >= 0.83
