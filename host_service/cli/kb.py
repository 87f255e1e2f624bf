"""`runmesh kb`: knowledge bases, and the documents in them."""

from typing import TYPE_CHECKING, Annotated

import typer

from host_service.cli import kb_search
from host_service.cli.failures import EXIT_DONE, EXIT_FAILED, CommandError, one_line, tell
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
    from collections.abc import Sequence

    from runmesh.admin.v1 import admin_pb2, knowledge_pb2

    from host_service.cli.connection import HostConnection
    from host_service.cli.kb_adding import Summary
    from host_service.cli.kb_files import FoundFiles

BaseArgument = Annotated[str, typer.Argument(metavar="ID", help="The knowledge base.")]

_DEFAULT_AGENT = "default"
_MOST_SKIPPED = 20
_ADVICE = {"NOT_FOUND": "'runmesh kb list' shows those there are"}


def add_to(application: typer.Typer) -> None:
    """Adds the group to the application."""
    group = typer.Typer(
        help="Create knowledge bases, fill, search and remove them.", rich_markup_mode=None
    )
    group.command("create")(create)
    group.command("add")(add)
    group.command("list")(list_knowledge)
    group.command("search")(kb_search.search)
    group.command("remove")(remove)
    application.add_typer(group, name="kb")


def create(
    knowledge_base_id: BaseArgument,
    name: Annotated[str, typer.Option(help="A name to show.", show_default=False)] = "",
    description: Annotated[
        str, typer.Option(help="What it is about; agents are told.", show_default=False)
    ] = "",
    embedding_model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="The model that makes its vectors.  [default: none: searched by its text alone]",
            show_default=False,
        ),
    ] = "",
    chunk_characters: Annotated[
        int, typer.Option(min=50, max=20_000, help="How long its passages may be.")
    ] = 1000,
    overlap: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="How much of a passage the next repeats.  [default: 100, or a tenth of a passage]",
            show_default=False,
        ),
    ] = None,
    agent: Annotated[
        str, typer.Option(metavar="ID", help="The agent that is given it.")
    ] = _DEFAULT_AGENT,
    no_agent: Annotated[bool, typer.Option("--no-agent", help="Give it to no agent yet.")] = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Create a knowledge base, and give it to an agent."""
    from runmesh.admin.v1 import admin_pb2, knowledge_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host

    chunking = admin_pb2.Chunking(characters=chunk_characters, overlap_characters=overlap)
    base = admin_pb2.KnowledgeBase(
        id=knowledge_base_id,
        name=name,
        description=description,
        embedding_model=embedding_model,
        chunking=chunking,
    )

    async def work(host: "HostConnection") -> None:
        there = await _bases(host)
        if any(each.id == knowledge_base_id for each in there):
            raise CommandError(
                f"knowledge base {knowledge_base_id} is there already",
                "'runmesh kb add' adds documents to it, 'runmesh apply' changes it",
            )
        applied = await host.admin.Apply(
            admin_pb2.ApplyRequest(knowledge_bases=[base]),
            metadata=host.metadata,
            timeout=CALL_SECONDS,
        )
        for warning in applied.warnings:
            tell(warning)
        print(f"knowledge base {knowledge_base_id}: created")
        if not no_agent:
            granted = await host.admin.GrantKnowledgeBase(
                knowledge_pb2.GrantKnowledgeBaseRequest(
                    knowledge_base_id=knowledge_base_id, agent_id=agent
                ),
                metadata=host.metadata,
                timeout=CALL_SECONDS,
            )
            print(f"agent {agent}: may search it, by its {granted.granted_in}")
            if granted.warning:
                tell(f"agent {agent} will not search it for now: {granted.warning}")

    advice = {
        "NOT_FOUND": f"knowledge base {knowledge_base_id} is created; 'runmesh agents list' shows "
        "to whom it can be given"
    }
    call_host(target(data, address, insecure, ca, cert, cert_key), work, advice=advice)


def add(
    knowledge_base_id: BaseArgument,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]...",
            show_default=False,
            help="Files, folders, and patterns such as 'docs/**/*.md'.",
        ),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Said of each document, to filter by."),
    ] = None,
    sync: Annotated[
        bool,
        typer.Option("--sync", help="Remove documents of these folders whose files are gone."),
    ] = False,
    vectors: Annotated[
        bool, typer.Option("--vectors", help="Have vectors made that are missing, and wait for it.")
    ] = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> int:
    """Add documents: text, Markdown, HTML and PDF.

    Folders are walked, hidden files left out. A document is known by its path within the folder:
    adding it again replaces it, and leaves it as it is where nothing has changed. After an
    interruption it goes on. Exit 1 when any of them failed.
    """
    if not paths and not vectors:
        raise typer.BadParameter("give files or folders, or --vectors")
    from host_service.cli.connection import call_host
    from host_service.cli.kb_adding import Adding, make_vectors
    from host_service.cli.kb_files import find_files
    from host_service.cli.kb_search import named_values

    found = find_files(paths or ())
    if sync and not found.folders:
        raise typer.BadParameter("--sync is about folders: give one")
    adding = Adding(
        knowledge_base_id, metadata_json=named_values(metadata or ()), found=found, sync=sync
    )

    async def work(host: "HostConnection") -> "Summary":
        summary = await adding.work(host)
        if vectors:
            await make_vectors(host, knowledge_base_id)
        return summary

    _tell_skipped(found)
    where = target(data, address, insecure, ca, cert, cert_key)
    summary = call_host(where, work, advice=_ADVICE)
    if paths:
        print(summary.told())
    if summary.vectors_missing and not vectors:
        tell(
            f"passages have no vectors yet, and are found by their text: {summary.vectors_missing}"
        )
    for path, why in summary.failed:
        tell(f"{path}: {why}")
    return EXIT_FAILED if summary.failed else EXIT_DONE


def _tell_skipped(found: "FoundFiles") -> None:
    from host_service.cli.display import notes

    for path, why in found.skipped[:_MOST_SKIPPED]:
        notes().print(one_line(f"{path}: skipped: {why}"), style="dim", soft_wrap=True)
    more = len(found.skipped) - _MOST_SKIPPED
    if more > 0:
        notes().print(f"{more} more files were skipped", style="dim")


def list_knowledge(
    knowledge_base_id: Annotated[
        str,
        typer.Argument(metavar="[ID]", show_default=False, help="List the documents of this one."),
    ] = "",
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """List knowledge bases with what they have, or the documents of one."""
    from host_service.cli.connection import call_host
    from host_service.cli.json_output import print_json, print_json_list, to_json
    from host_service.cli.kb_adding import list_documents

    where = target(data, address, insecure, ca, cert, cert_key)
    if knowledge_base_id:

        async def documents(host: "HostConnection") -> "Sequence[knowledge_pb2.Document]":
            return await list_documents(host, knowledge_base_id)

        found = call_host(where, documents, advice=_ADVICE)
        print_json_list(found) if json else _print_documents(found, knowledge_base_id)
        return

    async def bases(host: "HostConnection") -> "Sequence[_Counted]":
        return [(base, await _counts(host, base.id)) for base in await _bases(host)]

    counted = call_host(where, bases)
    if json:
        print_json([to_json(base) | to_json(counts) for base, counts in counted])
    else:
        _print_bases(counted)


def remove(
    knowledge_base_id: BaseArgument,
    document_id: Annotated[
        str,
        typer.Argument(metavar="[DOCUMENT]", show_default=False, help="Remove this one only."),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Remove a knowledge base with its documents, or one document."""
    from host_service.cli.connection import CALL_SECONDS, call_host

    what = f"knowledge base {knowledge_base_id}"
    if document_id:
        what = f"document {document_id} of {what}"

    async def work(host: "HostConnection") -> bool:
        from runmesh.admin.v1 import admin_pb2, knowledge_pb2

        counts = await _counts(host, knowledge_base_id)
        if not yes:
            _confirm(what if document_id else f"{what} with {counts.documents} documents")
        if document_id:
            gone = await host.admin.DeleteDocument(
                knowledge_pb2.DeleteDocumentRequest(
                    knowledge_base_id=knowledge_base_id, document_id=document_id
                ),
                metadata=host.metadata,
                timeout=CALL_SECONDS,
            )
            return gone.existed
        removed = await host.admin.DeleteKnowledgeBase(
            admin_pb2.DeleteKnowledgeBaseRequest(knowledge_base_id=knowledge_base_id),
            metadata=host.metadata,
            timeout=CALL_SECONDS,
        )
        return removed.existed

    where = target(data, address, insecure, ca, cert, cert_key)
    if not call_host(where, work, advice=_ADVICE):
        raise CommandError(
            f"there is no {what}", f"'runmesh kb list {knowledge_base_id}' shows its documents"
        )
    print(f"{what}: removed")


def _confirm(what: str) -> None:
    import sys

    if not sys.stdin.isatty():
        raise CommandError(f"nobody is here to be asked about {what}", "give --yes to remove it")
    if not typer.confirm(f"Remove {what}?"):
        raise typer.Abort


async def _bases(host: "HostConnection") -> "Sequence[admin_pb2.KnowledgeBase]":
    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import CALL_SECONDS
    from host_service.cli.paging import collect

    async def page(size: int, token: str) -> "tuple[Sequence[admin_pb2.KnowledgeBase], str]":
        answer = await host.admin.ListKnowledgeBases(
            admin_pb2.ListKnowledgeBasesRequest(page_size=size, page_token=token),
            metadata=host.metadata,
            timeout=CALL_SECONDS,
        )
        return answer.knowledge_bases, answer.next_page_token

    return await collect(page)


async def _counts(
    host: "HostConnection", knowledge_base_id: str
) -> "knowledge_pb2.CountDocumentsResponse":
    from runmesh.admin.v1 import knowledge_pb2

    from host_service.cli.connection import CALL_SECONDS

    return await host.admin.CountDocuments(
        knowledge_pb2.CountDocumentsRequest(knowledge_base_id=knowledge_base_id),
        metadata=host.metadata,
        timeout=CALL_SECONDS,
    )


if TYPE_CHECKING:
    _Counted = tuple[admin_pb2.KnowledgeBase, knowledge_pb2.CountDocumentsResponse]


def _print_bases(counted: "Sequence[_Counted]") -> None:
    from rich.filesize import decimal

    from host_service.cli.display import print_table, yes_or_no

    rows = [
        [
            base.id,
            str(counts.documents),
            str(counts.passages),
            f"{counts.passages_with_vectors} by {base.embedding_model}"
            if base.embedding_model
            else "text only",
            decimal(counts.size_bytes),
            yes_or_no(base.enabled or not base.HasField("enabled")),
            base.name,
        ]
        for base, counts in counted
    ]
    print_table(
        ["KNOWLEDGE BASE", "DOCUMENTS", "PASSAGES", "VECTORS", "SIZE", "ENABLED", "NAME"],
        rows,
        empty="no knowledge bases: 'runmesh kb create ID' makes one",
    )


def _print_documents(documents: "Sequence[knowledge_pb2.Document]", base_id: str) -> None:
    from rich.filesize import decimal
    from runmesh.admin.v1 import knowledge_pb2

    from host_service.cli.display import print_table, words

    rows = [
        [
            document.document_id,
            words(knowledge_pb2.DocumentStatus, document.status),
            str(document.passages),
            decimal(document.size_bytes),
            document.mime_type,
            document.failure,
        ]
        for document in documents
    ]
    print_table(
        ["DOCUMENT", "STATUS", "PASSAGES", "SIZE", "TYPE", "WHY"],
        rows,
        empty=f"no documents: 'runmesh kb add {base_id} PATH' adds some",
    )
