"""The examples in other languages, as the tests of all of them use them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.polyglot.examples import built_example


@pytest.fixture(scope="session")
def built() -> Callable[[str], Path]:
    """Gives the plugin folder of a language's example: `built("go")`. It is built once."""
    return built_example
