"""Opening all stores of a SQL database: the composition of this side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from stores.blobs import BlobStore, open_blobs
from stores.blobs.folder import FolderBlobs
from stores.errors import InvalidDatabaseUrl
from stores.limits import StoreLimits
from stores.opened import Stores
from stores.secret_keys import SecretKeys
from stores.sql.actions import SqlActions
from stores.sql.artifacts import SqlArtifacts
from stores.sql.attach_tokens import SqlAttachTokens
from stores.sql.audit import SqlAudit
from stores.sql.catalogue import SqlCatalogue
from stores.sql.connection import Connection, Database
from stores.sql.dialect import Dialect
from stores.sql.event_log import SqlEventLog
from stores.sql.hosts import SqlHosts
from stores.sql.journal import SqlJournal
from stores.sql.keys import SqlApiKeys
from stores.sql.knowledge import SqlKnowledge
from stores.sql.knowledge_collecting import KnowledgeCollector
from stores.sql.ledger import SqlRunLedger
from stores.sql.readers import Readers
from stores.sql.retention import SqlRetention
from stores.sql.schema import bring_up_to_date
from stores.sql.search import SqlSearch
from stores.sql.search_backfill import SearchBackfill
from stores.sql.secrets import SqlSecrets
from stores.sql.sqlite import SqliteDialect, check_file
from stores.sql.state import SqlState
from stores.sql.storage import SqlStorage
from stores.sql.transcript import SqlTranscript
from stores.sql.values import microseconds
from stores.sql.vector_indexing import VectorIndexer

_FORMS = "use sqlite:///path/to/file or postgresql+psycopg://user@host/name"

_SEARCHERS = 2

_ONE = sa.select(sa.literal(1))


async def open_sql_stores(
    url: str,
    *,
    synchronous: str,
    clock: Callable[[], datetime],
    blobs_url: str | None,
    secret_keys: SecretKeys,
    limits: StoreLimits,
) -> Stores:
    """Open the stores of a SQL database; see `stores.open_stores`."""
    database = open_database(url, synchronous=synchronous)
    blobs = open_blob_store(blobs_url, database.engine.url)
    await asyncio.to_thread(bring_up_to_date, database)
    loop = asyncio.get_running_loop()
    journal = SqlJournal(database=database, loop=loop)
    readers = Readers(database=database, loop=loop)
    # Threads of their own: a search through much must not hold up the reads that runs wait for.
    searchers = Readers(database=database, loop=loop, threads=_SEARCHERS)
    return _compose(
        database=database,
        journal=journal,
        readers=readers,
        searchers=searchers,
        blobs=blobs,
        loop=loop,
        clock=clock,
        secret_keys=secret_keys,
        limits=limits,
    )


def open_database(url: str, *, synchronous: str) -> Database:
    """Return the database of a URL; nothing is opened yet.

    Raises:
        InvalidDatabaseUrl: The URL has no form that is known.
        StoreUnavailable: The folder of its file does not exist.
    """
    try:
        parsed = sa.make_url(url)
    except ArgumentError as error:
        raise InvalidDatabaseUrl(f"the database URL cannot be read: {_FORMS}") from error
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        check_file(parsed)
        return Database(dialect=SqliteDialect(synchronous=synchronous), url=parsed)
    if parsed.drivername in ("postgresql", "postgresql+psycopg"):
        url_of_driver = parsed.set(drivername="postgresql+psycopg")
        return Database(dialect=_postgresql(), url=url_of_driver)
    raise InvalidDatabaseUrl(f"databases of kind {parsed.drivername!r} are not known: {_FORMS}")


def open_blob_store(url: str | None, database: sa.URL) -> BlobStore | None:
    """Return the blob store of a URL, or the one that a database has by itself.

    Raises:
        InvalidBlobsUrl: The URL has a form that is not known.
    """
    if url is not None:
        return open_blobs(url)
    if database.drivername.startswith("sqlite"):
        # Made at the first write, beside the database.
        return FolderBlobs(Path(str(database.database)).absolute().parent / "blobs")
    return None


def _postgresql() -> Dialect:
    # Its driver takes a tenth of a second to import; who is on SQLite does not pay it.
    from stores.sql.postgresql import PostgresqlDialect

    return PostgresqlDialect()


def _compose(
    *,
    database: Database,
    journal: SqlJournal,
    readers: Readers,
    searchers: Readers,
    blobs: BlobStore | None,
    loop: asyncio.AbstractEventLoop,
    clock: Callable[[], datetime],
    secret_keys: SecretKeys,
    limits: StoreLimits,
) -> Stores:
    dialect = database.dialect
    audit = SqlAudit(journal=journal, readers=readers, loop=loop)
    secrets = SqlSecrets(
        journal=journal,
        readers=readers,
        clock=clock,
        keys=secret_keys,
        most_bytes=limits.secret_bytes,
    )
    collector = KnowledgeCollector(
        journal=journal,
        readers=readers,
        now=lambda: microseconds("clock", "now", clock()),
    )
    collector.start()
    indexer = VectorIndexer(database=database, limits=limits)
    indexer.start()
    catalogue = SqlCatalogue(
        journal=journal,
        readers=readers,
        clock=clock,
        secrets=secrets,
        on_removed_base=collector.wake,
    )
    backfill = SearchBackfill(journal=journal, readers=readers)
    backfill.start()

    async def ping() -> None:
        await readers.first(_ONE, {})
        await journal.submit(_answer)

    async def close() -> None:
        await backfill.stop()
        await collector.stop()
        await indexer.stop()
        await audit.flush()
        # All of them: the last connection to a SQLite file folds its WAL into it.
        await readers.close()
        await searchers.close()
        await journal.close()
        if blobs is not None:
            await blobs.close()

    return Stores(
        events=SqlEventLog(journal=journal, readers=readers),
        transcript=SqlTranscript(
            readers=readers, search=SqlSearch(readers=readers, dialect=dialect)
        ),
        ledger=SqlRunLedger(journal=journal, readers=readers),
        hosts=SqlHosts(journal=journal, readers=readers),
        artifacts=SqlArtifacts(journal=journal, readers=readers, blobs=blobs, clock=clock),
        state=SqlState(
            journal=journal, readers=readers, clock=clock, most_bytes=limits.state_value_bytes
        ),
        storage=SqlStorage(
            journal=journal, readers=readers, clock=clock, most_bytes=limits.storage_value_bytes
        ),
        actions=SqlActions(journal=journal, readers=readers),
        catalogue=catalogue,
        secrets=secrets,
        keys=SqlApiKeys(journal=journal, readers=readers),
        attach_tokens=SqlAttachTokens(journal=journal, readers=readers),
        knowledge=SqlKnowledge(
            journal=journal,
            readers=readers,
            searchers=searchers,
            collector=collector,
            dialect=dialect,
            clock=clock,
            limits=limits,
            indexer=indexer,
        ),
        audit=audit,
        retention=SqlRetention(journal=journal, readers=readers, catalogue=catalogue, clock=clock),
        journal=journal,
        ping=ping,
        close=close,
    )


def _answer(connection: Connection) -> None:
    connection.first(_ONE, {})
