"""What every servicer does with a request: check it."""

from __future__ import annotations

from google.protobuf.message import Message

from host_service.errors import FieldFault, InvalidArgument, PayloadTooLarge
from host_service.validation import Validator


class RequestCheck:
    """Refuses requests that break the contract's rules.

    Args:
        validator: Knows the rules.
    """

    def __init__(self, *, validator: Validator) -> None:
        self._validator = validator

    def require(self, request: Message) -> None:
        """Return if a request may pass.

        Raises:
            PayloadTooLarge: A field is larger than its limit.
            InvalidArgument: Fields break rules; all of them are named.
        """
        violations = self._validator.find_violations(request)
        if not violations:
            return
        for each in violations:
            if each.size is not None and each.limit is not None:
                raise PayloadTooLarge(each.field, size_bytes=each.size, limit_bytes=each.limit)
        raise InvalidArgument([FieldFault(each.field, each.rule, each.got) for each in violations])
