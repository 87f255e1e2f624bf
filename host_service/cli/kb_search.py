"""`runmesh kb search`: what runs would find."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from host_service.cli.failures import tell, visible
from host_service.cli.options import (
    AddressOption,
    CaOption,
    CertKeyOption,
    CertOption,
    DataOption,
    InsecureOption,
    JsonOption,
    target,
)

if TYPE_CHECKING:
    from rich.text import Text
    from runmesh.admin.v1 import knowledge_pb2
    from runmesh.v1 import host_api_pb2

    from host_service.cli.connection import HostConnection

_SHORTEST_WORD = 2


def search(
    knowledge_base_id: Annotated[str, typer.Argument(metavar="ID", help="The knowledge base.")],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for, in any words.")],
    top_k: Annotated[int, typer.Option(min=1, max=50, help="How many passages.")] = 5,
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="NAME=VALUE", help="Only documents with this metadata."),
    ] = None,
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Search a knowledge base as runs do, and show each passage with its source."""
    from runmesh.admin.v1 import knowledge_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.json_output import print_json_list

    async def work(host: "HostConnection") -> "knowledge_pb2.SearchKnowledgeResponse":
        request = knowledge_pb2.SearchKnowledgeRequest(
            knowledge_base_ids=[knowledge_base_id],
            query=query,
            top_k=top_k,
            filters_json=named_values(filters) if filters else None,
        )
        return await host.admin.SearchKnowledge(
            request, metadata=host.metadata, timeout=CALL_SECONDS
        )

    advice = {"NOT_FOUND": "'runmesh kb list' shows those there are"}
    found = call_host(target(data, address, insecure, ca, cert, cert_key), work, advice=advice)
    if found.vectors_missing:
        tell(f"searched by text only: {found.vectors_missing}")
    if json:
        print_json_list(found.hits)
    else:
        _print_hits(found.hits, query)


def named_values(given: Sequence[str]) -> str:
    """A JSON object of `NAME=VALUE`s: numbers, true, false and null as such, all else as text.

    Raises:
        typer.BadParameter: One has no name.
    """
    import json

    pieces = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not separator or not name:
            raise typer.BadParameter(f"{each!r} is not NAME=VALUE")
        pieces[name] = value if _is_plain_json(value) else json.dumps(value, ensure_ascii=False)
    named = (f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in pieces.items())
    return "{" + ",".join(named) + "}"


def _is_plain_json(value: str) -> bool:
    """Whether a text is a JSON number, true, false or null: it keeps all its digits then."""
    import json
    import math

    try:
        read = json.loads(value)
    except ValueError:
        return False
    if isinstance(read, float) and not math.isfinite(read):
        return False
    return read is None or isinstance(read, bool | int | float)


def _print_hits(hits: "Sequence[host_api_pb2.KnowledgeHit]", query: str) -> None:
    from rich.text import Text

    from host_service.cli.display import notes, output

    if not hits:
        notes().print("nothing was found", style="dim")
        return
    console = output()
    for number, hit in enumerate(hits, start=1):
        line = Text(f"{number}. ")
        line.append(visible(hit.document_name), style="bold")
        line.append(f"  {visible(_place(hit))}  score {hit.score:.3f}", style="dim")
        console.print(line, soft_wrap=True)
        console.print(_highlighted(hit.text, query), soft_wrap=True)
        console.print()


def _place(hit: "host_api_pb2.KnowledgeHit") -> str:
    import json

    metadata = json.loads(hit.metadata_json or "{}")
    page = f"page {metadata['page']}" if "page" in metadata else ""
    heading = str(metadata.get("heading", ""))
    return ", ".join(filter(None, [heading, page, f"at {hit.position}"]))


def _highlighted(text: str, query: str) -> "Text":
    import re

    from rich.text import Text

    shown = Text("   " + visible(text).replace("\n", "\n   "))
    words = {each for each in re.findall(r"\w+", query) if len(each) >= _SHORTEST_WORD}
    # What is written without spaces is found by its pairs of characters.
    pairs = {
        word[at : at + 2] for word in words if not word.isascii() for at in range(len(word) - 1)
    }
    longest_first = sorted(words | pairs, key=len, reverse=True)
    if longest_first:
        pattern = "|".join(map(re.escape, longest_first))
        shown.highlight_regex(re.compile(pattern, re.IGNORECASE), "bold yellow")
    return shown
