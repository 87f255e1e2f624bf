"""What a store may raise.

The tree::

    StoreError
    +-- InvalidRecord          a record that no engine may be given; names record, field and rule
    |   +-- ValueTooLarge      a value over its limit; names both sizes
    +-- InvalidDatabaseUrl     a database URL of a form that is not known
    +-- InvalidBlobsUrl        a blob store's URL of a form that is not known
    +-- Refused                a condition of the write did not hold; nothing of it was written
    |   +-- EventConflict      the same event key with other content
    |   +-- ActionConflict     the same idempotency key with another action
    |   +-- RunNotWritable     the run is unknown, has ended, or belongs to another host
    |   +-- RevisionConflict   the stored revision is not the expected one
    |   +-- VersionConflict    the stored version of a key of state is not the expected one
    |   +-- AlreadyExists      a key of the record is taken
    |   +-- MissingReference   the record names another one that is not stored
    |   +-- StillReferenced    others name the record that was to be deleted
    |   +-- StagingLost        a staged version of a document is not there as it was
    |   +-- ContentTooLarge    more bytes came than may come
    |   +-- ContentMismatch    the bytes are not those that were declared
    +-- BlobLost               the bytes of an artifact are not, or not whole, in the blob store
    +-- ConstraintViolated     the database refused a row; nothing of its piece of work was written
    +-- StoreOverloaded        more work waits than the journal may hold
    +-- StoreUnavailable       the database cannot be reached or written; may be tried again
    +-- StoreClosed            the stores were closed
    +-- SchemaTooNew           the database was written by a newer version
    +-- TransferRefused        an export or import cannot begin where it was told to
    +-- TransferDamaged        what is to be imported is not what was exported
    +-- SecretKeyUnusable      there is no key for secrets, or it is not what a key must be
    +-- SecretUnreadable       a stored secret cannot be decrypted with the keys there are

Driver and SQLAlchemy errors never leave the layer: they are the `__cause__` of one of these.
"""

from __future__ import annotations

from typing import Literal


class StoreError(Exception):
    """Whatever the store layer raises."""


class InvalidRecord(StoreError):
    """A record holds a value that cannot be stored, on any engine.

    Raised in the caller, before anything is handed to the journal.

    Attributes:
        record: The kind of record, such as `transcript item`.
        field: The field's name.
        rule: What must hold for the field.
    """

    def __init__(self, record: str, field: str, rule: str) -> None:
        """Name the record, the field and the rule that it breaks."""
        super().__init__(f"{record}: field {field} {rule}")
        self.record = record
        self.field = field
        self.rule = rule


class ValueTooLarge(InvalidRecord):
    """A value is larger than it may be.

    Attributes:
        size: How many bytes it has.
        limit: How many it may have.
    """

    def __init__(self, record: str, field: str, size: int, limit: int) -> None:
        """Name the value and both sizes."""
        super().__init__(record, field, f"must be at most {limit} bytes, is {size}")
        self.size = size
        self.limit = limit


class InvalidDatabaseUrl(StoreError):
    """The database URL has a form that is not known, or names no database."""


class InvalidBlobsUrl(StoreError):
    """The blob store's URL has a form that is not known, or lacks a part."""


class Refused(StoreError):
    """A condition of the write did not hold; nothing of it was written.

    Raised by a piece of work before it writes anything, so that the pieces it shares a
    transaction with are not disturbed.
    """


class EventConflict(Refused):
    """An event with the same key and other content is stored already.

    Attributes:
        event_id: The event id that both share.
        run_id: The run of the stored event, if it has one.
    """

    def __init__(self, event_id: str, run_id: str | None) -> None:
        """Name the event, and the run that the stored event has."""
        super().__init__(f"event {event_id!r} is stored already with other content")
        self.event_id = event_id
        self.run_id = run_id


class ActionConflict(Refused):
    """An action with the same scope and idempotency key, and other content, is stored already.

    Attributes:
        action_id: The stored action.
        run_id: The run that asked for it.
    """

    def __init__(self, action_id: str, run_id: str) -> None:
        """Name the stored action and its run."""
        super().__init__(f"action {action_id!r} has the same idempotency key and other content")
        self.action_id = action_id
        self.run_id = run_id


class RunNotWritable(Refused):
    """Facts were handed in for a run that does not take them.

    Attributes:
        run_id: The run.
        reason: `unknown`, `ended` or `other_host`.
    """

    def __init__(self, run_id: str, reason: Literal["unknown", "ended", "other_host"]) -> None:
        """Name the run and why it takes nothing."""
        meaning = {
            "unknown": "is not in the ledger",
            "ended": "has ended",
            "other_host": "belongs to another host",
        }
        super().__init__(f"run {run_id!r} {meaning[reason]}: nothing was recorded")
        self.run_id = run_id
        self.reason = reason


class RevisionConflict(Refused):
    """The stored revision is not the one that the writer expected.

    Attributes:
        kind: `agent` or `binding`.
        id: The record's id.
        expected: The revision the writer had read; 0 says that it must not exist.
        actual: The stored revision; 0 says that it does not exist.
    """

    def __init__(self, kind: str, id: str, expected: int, actual: int) -> None:
        """Name the record and both revisions."""
        super().__init__(f"{kind} {id!r} has revision {actual}, not {expected}: read it again")
        self.kind = kind
        self.id = id
        self.expected = expected
        self.actual = actual


class VersionConflict(Refused):
    """A key of state has another version than the writer expected.

    Attributes:
        key: The key.
        expected: The version the writer had read; 0 says that there must be no value.
        actual: The stored version; 0 says that there is no value.
    """

    def __init__(self, key: str, expected: int, actual: int) -> None:
        """Name the key and both versions."""
        super().__init__(f"state {key!r} has version {actual}, not {expected}: read it again")
        self.key = key
        self.expected = expected
        self.actual = actual


class AlreadyExists(Refused):
    """A key of the record is taken by a stored one.

    Attributes:
        kind: The kind of record.
        field: The field whose value is taken.
    """

    def __init__(self, kind: str, field: str) -> None:
        """Name the kind of record and the field; the value may be a secret."""
        super().__init__(f"{kind}: another one with this {field} is stored already")
        self.kind = kind
        self.field = field


class MissingReference(Refused):
    """The record names another record that is not stored."""

    def __init__(self, kind: str, id: str, names: str, missing: str) -> None:
        """Name the record and what it names in vain."""
        super().__init__(f"{kind} {id!r} names {names} {missing!r}, which is not stored")
        self.kind = kind
        self.id = id
        self.missing = missing


class StillReferenced(Refused):
    """Others name the record that was to be deleted.

    Attributes:
        by: The ids of those that name it, at most ten.
    """

    def __init__(self, kind: str, id: str, by_kind: str, by: tuple[str, ...]) -> None:
        """Name the record and those that name it."""
        names = ", ".join(by)
        super().__init__(f"{kind} {id!r} is still named by {by_kind} {names}: delete these first")
        self.kind = kind
        self.id = id
        self.by = by


class StagingLost(Refused):
    """A version of a document is not staged any more, or another writer went on with it.

    Attributes:
        document_id: The document.
    """

    def __init__(self, document_id: str) -> None:
        """Name the document and what to do."""
        super().__init__(
            f"document {document_id!r} was staged anew, finished or removed meanwhile: stage it "
            "again"
        )
        self.document_id = document_id


class ContentTooLarge(Refused):
    """More bytes came than may come; none of them were kept.

    Attributes:
        most_bytes: How many may come.
    """

    def __init__(self, most_bytes: int) -> None:
        """Name the limit."""
        super().__init__(f"the content has more than {most_bytes} bytes, which is the limit")
        self.most_bytes = most_bytes


class ContentMismatch(Refused):
    """The bytes that came are not those that were declared; none of them were kept.

    Attributes:
        field: `size_bytes` or `sha256`.
        declared: What was declared.
        actual: What came.
    """

    def __init__(self, field: str, declared: str, actual: str) -> None:
        """Name the field and both values."""
        super().__init__(
            f"the content has {field} {actual}, declared was {declared}: send it again"
        )
        self.field = field
        self.declared = declared
        self.actual = actual


class BlobLost(StoreError):
    """Bytes that should be in the blob store are not there, or not as they were.

    Something outside the program took or changed them.

    Attributes:
        name: The blob's name.
    """

    def __init__(self, name: str, problem: str) -> None:
        """Name the blob and what is the matter with it."""
        super().__init__(f"blob {name} {problem}: restore the blob store from a backup")
        self.name = name


class ConstraintViolated(StoreError):
    """The database refused a row: a taken key, or a reference to nothing.

    Nothing of the same piece of work was written.
    """


class StoreOverloaded(StoreError):
    """More work waits for the journal than it may hold; retry after `Journal.room`."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, or cannot be written; may be tried again.

    Attributes:
        in_doubt: Whether the write may be stored all the same, because the connection was lost
            between its commit and the answer.
    """

    def __init__(self, message: str, *, in_doubt: bool = False) -> None:
        """Say what the database said."""
        super().__init__(message)
        self.in_doubt = in_doubt


class StoreClosed(StoreError):
    """The stores were closed; nothing was written."""

    def __init__(self) -> None:
        """Take no argument: there is nothing to add."""
        super().__init__("the stores are closed")


class SchemaTooNew(StoreError):
    """The database was written by a newer version of this program.

    Attributes:
        found: The schema revision in the database.
        known: The newest revision that this version knows.
    """

    def __init__(self, found: str, known: str) -> None:
        """Name both revisions and what to do."""
        super().__init__(
            f"the database has schema revision {found}, this version knows up to {known}: "
            "use the version that wrote it, or a newer one"
        )
        self.found = found
        self.known = known


class TransferRefused(StoreError):
    """An export or import cannot begin where it was told to; the message says what to do."""


class TransferDamaged(StoreError):
    """What is to be imported is not, or not whole, what was exported; nothing was imported."""


class SecretKeyUnusable(StoreError):
    """There is no key to encrypt secrets with, or what is given is none.

    The message names the place and what to do, and nothing of the key.
    """


class SecretUnreadable(StoreError):
    """A stored secret does not decrypt with the keys there are.

    Attributes:
        key_id: The id of the key that it was encrypted with.
    """

    def __init__(self, message: str, *, key_id: str) -> None:
        """Say whose secret it is, why, and what to do."""
        super().__init__(message)
        self.key_id = key_id
