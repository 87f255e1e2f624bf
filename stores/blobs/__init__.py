"""Blobs: bytes under names that are made from their SHA-256.

`BlobStore` has the promises. `open_blobs` opens one from a URL: a folder, or a bucket of an object
store. Which bytes are wanted is known to `stores.artifacts`, not here.
"""

from stores.blobs.names import BlobName
from stores.blobs.opening import open_blobs
from stores.blobs.store import BlobStore, Declared, StagedBlob, StoredBlob

__all__ = ["BlobName", "BlobStore", "Declared", "StagedBlob", "StoredBlob", "open_blobs"]
