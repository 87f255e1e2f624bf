"""Terms as both databases are given them: positive 32-bit numbers in braces.

A term becomes its CRC-32, so that nothing of a text or a query is ever seen by a database's own
rules for text, and a term of any length takes four bytes. Two terms may share a number: what was
found is compared with the query before it is given out.

An item has, beside the terms of its text, one for its conversation and one for its workspace.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from stores.search_text import Query, terms

# Neither stands in a term of a text.
_CONVERSATION = "\0c"
_WORKSPACE = "\0w"


def item_terms(text: str | None, conversation_key: str, workspace: str) -> str | None:
    """Return what an item is found by; `None` for one without text, which is not found."""
    if text is None:
        return None
    return _encoded((*terms(text), _CONVERSATION + conversation_key, _WORKSPACE + workspace))


def query_terms(query: Query, *, conversation_key: str) -> str:
    """Return what every item of a conversation has that a query finds."""
    return _encoded((*query.terms, _CONVERSATION + conversation_key))


def workspace_query_terms(query: Query, *, workspace: str) -> str:
    """Return what every item of a workspace has that a query finds."""
    return _encoded((*query.terms, _WORKSPACE + workspace))


def _encoded(of: Iterable[str]) -> str:
    return "{" + ",".join([str(crc32(term.encode()) & 0x7FFF_FFFF) for term in of]) + "}"
