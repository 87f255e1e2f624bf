"""Collects the items of a paged list."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")

# The contract's largest page.
PAGE_ITEMS = 100


async def collect(
    fetch: Callable[[int, str], Awaitable[tuple[Sequence[Item], str]]],
    *,
    limit: int | None = None,
) -> list[Item]:
    """Reads pages until the list, or the limit, ends.

    Args:
        fetch: Reads one page, given its size and its token; answers with the items and the next
            page's token, which is empty at the end.
        limit: How many items are enough. None: all of them.
    """
    items: list[Item] = []
    token = ""
    while limit is None or len(items) < limit:
        size = PAGE_ITEMS if limit is None else min(PAGE_ITEMS, limit - len(items))
        page, token = await fetch(size, token)
        items.extend(page)
        if not token:
            break
    return items
