"""Answers that come in pages, gone through item by item."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

_Item = TypeVar("_Item")

PAGE_SIZE = 50
"""How many items a page has: what the host gives by default."""


async def each(
    fetch: Callable[[str], Awaitable[Any]], items_of: Callable[[Any], Iterable[_Item]]
) -> AsyncIterator[_Item]:
    """Yields the items of all pages; the next page is fetched when one is used up.

    Args:
        fetch: Fetches the page with a token, the first with an empty one.
        items_of: Takes the items out of a page.
    """
    page_token = ""
    while True:
        page = await fetch(page_token)
        for item in items_of(page):
            yield item
        page_token = page.next_page_token
        if not page_token:
            return
