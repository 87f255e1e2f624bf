"""Real stores for whoever asks: a SQLite file each, migrated once for all."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stores import Stores, open_stores
from stores.secret_keys import new_secret_key, parse_secret_keys
from stores.sql.opening import open_database
from stores.sql.schema import bring_up_to_date

_KEYS = parse_secret_keys(new_secret_key(), source="tests")


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gives a database with the newest schema and nothing in it, to be copied."""
    path = tmp_path_factory.mktemp("sqlite") / "migrated.db"
    bring_up_to_date(open_database(f"sqlite:///{path}", synchronous="NORMAL"))
    return path


@pytest.fixture
async def stores(migrated_file: Path, tmp_path: Path) -> AsyncIterator[Stores]:
    """Gives open stores with nothing in them."""
    path = tmp_path / "stores.db"
    shutil.copy(migrated_file, path)
    opened = await open_stores(f"sqlite:///{path}", synchronous="NORMAL", secret_keys=_KEYS)
    yield opened
    await opened.close()
