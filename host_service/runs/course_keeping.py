"""When a run's course is written down: with its end, or on its way where that takes a while."""

from __future__ import annotations

import asyncio
import logging

from host_service.authorization.grants import Grant
from host_service.runs.course import Course, course_text
from host_service.runs.delivery import Delivery
from host_service.runs.services import RunServices
from stores.errors import StoreError
from stores.records import RunFacts

_log = logging.getLogger("runmesh.runs")

# A run that is shorter writes its course with its end, and pays nothing for it.
_COURSE_SECONDS = 1.0
# An end that took the store so long is worth one more write, to say so.
_SLOW_SECONDS = 0.5


class CourseKeeper:
    """Notes the course of one run, and has it kept.

    Args:
        run_id: The run.
        delivery: Its results; told of a note that could not be stored.
        services: What every run works with.

    Attributes:
        course: What is noted so far.
    """

    def __init__(self, run_id: str, *, delivery: Delivery, services: RunServices) -> None:
        self.course = Course()
        self._run_id = run_id
        self._delivery = delivery
        self._services = services
        self._saving: asyncio.TimerHandle | None = None
        self._ended_at = 0.0

    def note_grants(self, grants: tuple[Grant, ...]) -> None:
        """Its rights are frozen."""
        self.course.grants = grants
        if self._saving is None:
            self._saving = asyncio.get_running_loop().call_later(_COURSE_SECONDS, self._save)

    def note_first_word(self) -> None:
        """Its runner has said something."""
        self.course.first_result_at = self._services.clock()

    def note_last_word(self) -> None:
        """Its runner has had its last word, or is listened to no more."""
        self.course.last_word_at = self._services.clock()

    def at_end(self) -> str:
        """Return what the end brings along."""
        if self.course.last_word_at is None:
            self.note_last_word()
        self.stop()
        self._ended_at = asyncio.get_running_loop().time()
        return self._text()

    def note_stored(self) -> None:
        """The end is durable; how long that took is known only now, and told where it was long."""
        if asyncio.get_running_loop().time() - self._ended_at < _SLOW_SECONDS:
            return
        self.course.stored_at = self._services.clock()
        try:
            amended = self._services.ledger.amend_course(
                self._run_id,
                self._text(),
                host_incarnation=self._services.host_incarnation,
            )
        except StoreError as error:
            _log.debug("how long an end took to store was not noted: %s", error)
        else:
            amended.add_done_callback(_look_at_amended)

    def _text(self) -> str:
        return course_text(self.course, self._services.grant_texts)

    def stop(self) -> None:
        """Write nothing down any more on the way."""
        if self._saving is not None:
            self._saving.cancel()

    def _save(self) -> None:
        """Write down what is known by now, so that it is not lost with this host."""
        facts = RunFacts(
            run_id=self._run_id,
            host_incarnation=self._services.host_incarnation,
            course=self._text(),
        )
        self._services.ledger.record(facts).add_done_callback(self._delivery.saved)


def _look_at_amended(amended: asyncio.Future[bool]) -> None:
    """Look at what became of a note that nothing depends on: the end itself is stored."""
    if not amended.cancelled() and amended.exception() is not None:
        _log.debug("how long an end took to store was not noted: %s", amended.exception())
