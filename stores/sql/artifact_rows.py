"""Between artifacts and rows, and the rules for what is said of an artifact."""

from __future__ import annotations

import re

from stores.errors import InvalidRecord
from stores.records import ArtifactHeader, ArtifactRecord
from stores.sql.connection import Row
from stores.sql.rows import Encoded
from stores.sql.values import (
    check_ids,
    check_keys,
    check_text,
    microseconds,
    optional_microseconds,
    optional_time,
    time,
)

_KIND = "artifact"
_TYPE_CHARACTERS = 100

# Ids and types stand in URLs, file names and commands of others: nothing there may have a meaning.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:~-]*")
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_MIME_TYPE = re.compile(r"[\x20-\x7e]*")
# Who saves an artifact under its name must not be led to another folder.
_NO_NAME = re.compile(r"[/\\\x00-\x1f\x7f]")


def artifact_row(header: ArtifactHeader) -> Encoded:
    """Check and encode a header.

    Raises:
        InvalidRecord: A field breaks its rule.
    """
    check_ids(
        _KIND,
        artifact_id=header.artifact_id,
        workspace=header.workspace,
        bot=header.bot,
        run_id=header.run_id,
        type=header.type,
        mime_type=header.mime_type,
        name=header.name,
    )
    check_keys(_KIND, conversation_key=header.conversation_key)
    check_text(_KIND, "summary", header.summary)
    _check_forms(header)
    return {
        "artifact_id": header.artifact_id,
        "workspace": header.workspace,
        "bot": header.bot,
        "conversation_key": header.conversation_key,
        "run_id": header.run_id,
        "type": header.type,
        "mime_type": header.mime_type,
        "name": header.name,
        "summary": header.summary,
        "created_at": microseconds(_KIND, "created_at", header.created_at),
        "expires_at": optional_microseconds(_KIND, "expires_at", header.expires_at),
    }


def _check_forms(header: ArtifactHeader) -> None:
    if _ID.fullmatch(header.artifact_id) is None:
        rule = "must be letters, digits and ._:~- only, and begin with a letter or digit"
        raise InvalidRecord(_KIND, "artifact_id", rule)
    if _TYPE.fullmatch(header.type) is None or len(header.type) > _TYPE_CHARACTERS:
        rule = "must be a word of up to 100 letters, digits and ._+- that begins with one of those"
        raise InvalidRecord(_KIND, "type", rule)
    if _MIME_TYPE.fullmatch(header.mime_type) is None:
        raise InvalidRecord(_KIND, "mime_type", "must be printable ASCII, such as text/plain")
    if header.name in (".", "..") or _NO_NAME.search(header.name):
        rule = "must be a file name without folders: no / or \\, no control characters"
        raise InvalidRecord(_KIND, "name", rule)


def artifact_record(row: Row) -> ArtifactRecord:
    """Decode a row of `artifacts` with the digest and size of its blob."""
    return ArtifactRecord(
        artifact_id=row[0],
        workspace=row[1],
        bot=row[2],
        conversation_key=row[3],
        run_id=row[4],
        type=row[5],
        mime_type=row[6],
        name=row[7],
        summary=row[8],
        created_at=time(row[9]),
        expires_at=optional_time(row[10]),
        sha256=row[11],
        size_bytes=row[12],
    )
