"""Running a property whose examples are coroutines on stores that are open already."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# The stores live as long as the test function; every example has keys of its own.
EXAMPLES = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
KEYS = TEXTS.filter(lambda key: 0 < len(key.encode()) <= 200)


async def holds_for_all_examples(property_: Any) -> None:
    """Run a property's examples in the loop that the stores belong to."""
    loop = asyncio.get_running_loop()
    example = property_.hypothesis.inner_test

    def run(*arguments: Any, **keywords: Any) -> None:
        asyncio.run_coroutine_threadsafe(example(*arguments, **keywords), loop).result()

    property_.hypothesis.inner_test = run
    await asyncio.to_thread(property_)
