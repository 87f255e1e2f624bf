"""What holds for every test: the event loop of the product, and an environment without settings."""

import asyncio
import os
from collections.abc import Callable, Mapping

import pytest
import uvloop

from tests.time_limits import limit_asynchronous_tests


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Runs every asynchronous test on the loop that host and SDK use."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets no asynchronous test wait for ever."""
    limit_asynchronous_tests(items)


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the settings of whoever runs the tests: their host and its data are not ours."""
    for name in [name for name in os.environ if name.startswith("RUNMESH_")]:
        monkeypatch.delenv(name)
