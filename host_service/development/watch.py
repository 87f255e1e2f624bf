"""Waits for changes of a plugin's files, and tells them together when somebody saves many."""

import asyncio
import time

from host_service.development.source_files import SourceFiles, changed_paths

# From the moment that a file is saved to that it is noticed: half of this, on average.
_LOOK_SECONDS = 0.1
# A look that takes long is taken less often: at most this part of a processor goes into it.
_SHARE = 0.05
_LONGEST_PAUSE_SECONDS = 0.5
# Saving writes beside the file and renames, and an editor or git saves many files one by one:
# once nothing has changed for this long, it is done.
_QUIET_SECONDS = 0.05
# Something that never stops writing is not waited for.
_LONGEST_SETTLE_SECONDS = 0.5


class FileWatch:
    """Tells what has changed since it was last asked; nothing is missed between two questions.

    Args:
        files: What is watched.

    Attributes:
        seen_at: When the change that was told last was first seen, on the monotonic clock.
    """

    def __init__(self, files: SourceFiles) -> None:
        self.seen_at = time.monotonic()
        self._files = files
        self._known = files.look()
        self._pause_seconds = _LOOK_SECONDS

    async def changed(self) -> list[str]:
        """Waits for a change, and for the end of those that come with it.

        Returns:
            The paths that have changed, relative to the plugin's folder, sorted. Cancelled, it
            forgets nothing.
        """
        while True:
            now = await self._look()
            if now != self._known:
                break
            await asyncio.sleep(self._pause_seconds)
        self.seen_at = time.monotonic()
        late_at = self.seen_at + _LONGEST_SETTLE_SECONDS
        while time.monotonic() < late_at:
            await asyncio.sleep(_QUIET_SECONDS)
            latest = await self._look()
            if latest == now:
                break
            now = latest
        changed = changed_paths(self._known, now)
        # Written and taken back: nothing to do.
        self._known = now
        return changed or await self.changed()

    async def _look(self) -> dict[str, tuple[int, int, int]]:
        began_at = time.monotonic()
        found = await asyncio.to_thread(self._files.look)
        cost_seconds = time.monotonic() - began_at
        self._pause_seconds = min(max(_LOOK_SECONDS, cost_seconds / _SHARE), _LONGEST_PAUSE_SECONDS)
        return found
