"""The extension sqlite-vec, which compares vectors inside SQLite, where it can be loaded.

Many Pythons are built without what loads extensions, and the package is optional: nothing depends
on it.
"""

from __future__ import annotations

import logging
import sqlite3
from typing import Any

logger = logging.getLogger(__name__)


class SqliteVec:
    """Loads the extension into connections; for any thread.

    Attributes:
        name: Its name and version once it was loaded, `None` before and where it cannot be.
        missing: Why it cannot be loaded, and what would change that; `None` before it was tried.
    """

    def __init__(self) -> None:
        """Look for nothing yet."""
        self.name: str | None = None
        self.missing: str | None = None

    def load(self, driver: Any) -> None:
        """Load it into a new connection; some 50 microseconds, and a look at None once it failed.

        A connection without it is as good for all else.
        """
        if self.missing is not None:
            return
        try:
            self.name = _load(driver)
        except ImportError:
            self.missing = "install runmesh[sqlite-vec] for it"
        except AttributeError:
            self.missing = "this Python cannot load SQLite extensions: use one that can"
        except sqlite3.Error as error:
            # It is there, and was meant to work.
            self.missing = f"sqlite-vec does not load: {error}"
            logger.warning("vectors are compared without the database: %s", self.missing)


def _load(driver: Any) -> str:
    import sqlite_vec  # type: ignore[import-untyped]

    driver.enable_load_extension(True)  # noqa: FBT003 - the driver's
    try:
        driver.load_extension(sqlite_vec.loadable_path())
    finally:
        # Never by a statement that somebody slips in.
        driver.enable_load_extension(False)  # noqa: FBT003 - the driver's
    (version,) = driver.execute("SELECT vec_version()").fetchone()
    return f"sqlite-vec {version.removeprefix('v')}"
