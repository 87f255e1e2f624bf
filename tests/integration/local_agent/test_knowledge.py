"""The local agent with a knowledge base of the host's: passages in, sources out."""

import json
from collections.abc import Iterator

from runmesh.admin.v1 import admin_pb2, knowledge_pb2

from host_service.testing import RealHost
from tests.integration.local_agent.agents import PRIMARY, local_agent, model
from tests.integration.models.torture_server import TortureServer, said

_DOCUMENT = """# Tokens

The run token protects the rights of one run: it dies with the run.

# Cooking

Rice is cooked in twice as much water.
"""


async def _add(host: RealHost, base_id: str, name: str, text: str) -> None:
    """Adds a document and waits until it can be found."""

    def pieces() -> Iterator[knowledge_pb2.AddDocumentRequest]:
        info = knowledge_pb2.DocumentInfo(knowledge_base_id=base_id, document_id=name, name=name)
        yield knowledge_pb2.AddDocumentRequest(info=info)
        yield knowledge_pb2.AddDocumentRequest(chunk=text.encode())

    steps = [each.step async for each in host.admin.AddDocument(pieces(), metadata=host.metadata)]
    assert steps[-1] == knowledge_pb2.DOCUMENT_STEP_READY


async def test_answer_has_the_passages_and_says_where_they_are_from(server: TortureServer) -> None:
    server.answer(said("One run's rights [1]."))
    base = admin_pb2.KnowledgeBase(id="docs", name="The docs")
    chat = model(PRIMARY, server)
    async with local_agent(chat, knowledge_bases=["docs"], bases=[base]) as host:
        await _add(host, "docs", "tokens.md", _DOCUMENT)
        outcome = await host.dispatch("what does the run token protect?")
        again = await host.dispatch("and how is rice cooked?")

    assert outcome.text == "One run's rights [1].", outcome.run
    told = server.requests[0].body["messages"]
    assert "it dies with the run" not in json.dumps(told[:-1])
    assert 'source="tokens.md" base="The docs"' in told[-1]["content"]
    assert "it dies with the run" in told[-1]["content"]
    assert told[-1]["content"].endswith("what does the run token protect?")
    sources = json.loads(outcome.messages[0].metadata["sources"])
    assert (sources[0]["document"], sources[0]["base"]) == ("tokens.md", "The docs")
    # What was found for a question is told with that question only.
    later = server.requests[1].body["messages"]
    assert "it dies with the run" not in json.dumps(later[:-1])
    assert "twice as much water" in later[-1]["content"]
    assert again.status == "COMPLETED"
