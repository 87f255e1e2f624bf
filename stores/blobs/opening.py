"""Opening a blob store from its URL."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from stores.blobs.folder import FolderBlobs
from stores.blobs.store import BlobStore
from stores.errors import InvalidBlobsUrl

if TYPE_CHECKING:
    from obstore.store import S3Config

_FORMS = "use file:///path/to/folder or s3://bucket/prefix?region=...&endpoint=https://..."
_S3_OPTIONS = frozenset({"endpoint", "region"})

# A request moves a block at most. It may take so long, and what fails is tried again for so long.
_REQUEST_TIMEOUT = timedelta(seconds=30)
_CONNECT_TIMEOUT = timedelta(seconds=5)
_RETRY_TIMEOUT = timedelta(seconds=60)
_RETRIES = 3


def open_blobs(url: str, *, staging_folder: Path | None = None) -> BlobStore:
    """Open the blob store of a URL; nothing is read or written yet.

    Args:
        url: `file:///path/to/folder`, or `s3://bucket/prefix` with, where they are not in the
            environment, `?region=` and `?endpoint=` (for what is not Amazon's; a plain `http:`
            one is taken at its word). Credentials come from the environment (`AWS_ACCESS_KEY_ID`,
            `AWS_SECRET_ACCESS_KEY` and the like) or from the machine's role, never from the URL.
        staging_folder: Where uploads to an object store are gathered first; by default a folder
            among the machine's temporary files. A folder store has one of its own, and does not
            use it.

    Raises:
        InvalidBlobsUrl: The URL has neither form.
    """
    try:
        parsed = urlsplit(url)
    except ValueError as error:
        raise InvalidBlobsUrl(f"the URL of the blob store cannot be read: {_FORMS}") from error
    if parsed.scheme == "file":
        return FolderBlobs(_folder(parsed))
    if parsed.scheme == "s3":
        return _s3(parsed, staging_folder or Path(gettempdir(), "runmesh-blobs"))
    raise InvalidBlobsUrl(f"blob stores of kind {parsed.scheme!r} are not known: {_FORMS}")


def _folder(url: SplitResult) -> Path:
    path = unquote(url.path)
    if url.netloc not in ("", "localhost") or url.query or url.fragment:
        raise InvalidBlobsUrl(f"the URL of a blob folder has nothing but a path: {_FORMS}")
    if not path.startswith("/") or path == "/" or "\0" in path:
        raise InvalidBlobsUrl(f"the URL of a blob folder must have an absolute path: {_FORMS}")
    return Path(path)


def _s3(url: SplitResult, staging_folder: Path) -> BlobStore:
    if url.username is not None or url.password is not None:
        raise InvalidBlobsUrl(
            "the URL of the blob store must not have credentials, because it is shown: "
            "put them into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if not url.netloc or url.fragment:
        raise InvalidBlobsUrl(f"the URL of the blob store names no bucket: {_FORMS}")
    options = dict(parse_qsl(url.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - _S3_OPTIONS):
        raise InvalidBlobsUrl(f"option {unknown[0]!r} of the blob store is not known: {_FORMS}")
    # Its library takes a tenth of a second to import; who is on a folder does not pay it.
    from obstore.store import S3Store

    from stores.blobs.objects import ObjectBlobs

    objects = S3Store(
        url.netloc,
        prefix=unquote(url.path).strip("/") or None,
        client_options={
            "timeout": _REQUEST_TIMEOUT,
            "connect_timeout": _CONNECT_TIMEOUT,
            "allow_http": options.get("endpoint", "").startswith("http://"),
        },
        retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRY_TIMEOUT},
        # Of the known options, checked above; its own type is not there at run time.
        config=cast("S3Config", options),
    )
    return ObjectBlobs(objects, staging_folder=staging_folder)
