"""What can be wrong with a document."""

from __future__ import annotations

from host_service.errors import FieldFault, HostError, InvalidArgument


class DocumentUnreadable(Exception):
    """A document that no text can be had from.

    Attributes:
        message: What is wrong with it and what to do, in one line, fit for whoever sent it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ReaderFailed(DocumentUnreadable):
    """A document that the process which reads could not bear: it took too long, or ended it."""


class DocumentRefused(InvalidArgument):
    """A document that cannot be taken in, as whoever sent it hears of it."""

    def __init__(self, name: str, error: DocumentUnreadable) -> None:
        fault = FieldFault("document", "one that can be read", error.message)
        HostError.__init__(self, f"{name!r} cannot be read: {error.message}", faults=[fault])
