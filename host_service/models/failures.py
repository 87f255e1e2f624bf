"""What goes wrong at a provider, and what the one who asked is told of it.

Every failure has a kind, which programs find as the fact `model_error`:

======================  =====================  =================================================
kind                    reason                 what happened
======================  =====================  =================================================
authentication          RUNTIME_ERROR          the provider refuses the key: the operator's to mend
quota                   RUNTIME_ERROR          the provider wants to be paid: likewise
not_found               RUNTIME_ERROR          the provider does not know the model: likewise
rate_limited            RATE_LIMITED           too many calls or tokens; says when to try again
context_too_long        INVALID_ARGUMENT       the messages do not fit the model's context window
content_filter          INVALID_ARGUMENT       the provider refuses the content
refused                 INVALID_ARGUMENT       the provider refuses the request for another reason
timeout                 UNAVAILABLE            nothing came for too long
unavailable             UNAVAILABLE            no connection, an error of the provider's own
cut                     UNAVAILABLE            the answer broke off
bad_answer              RUNTIME_ERROR          what came is no answer
======================  =====================  =================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from host_service.errors import (
    FieldFault,
    HostError,
    InvalidArgument,
    RateLimited,
    Unavailable,
)


class Kind(StrEnum):
    """What kind of failure it is; see the module's table."""

    AUTHENTICATION = "authentication"
    QUOTA = "quota"
    NOT_FOUND = "not_found"
    RATE_LIMITED = "rate_limited"
    CONTEXT_TOO_LONG = "context_too_long"
    CONTENT_FILTER = "content_filter"
    REFUSED = "refused"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"
    CUT = "cut"
    BAD_ANSWER = "bad_answer"


# Who was silent for so long would be so again.
_WORTH_TRYING = frozenset({Kind.RATE_LIMITED, Kind.UNAVAILABLE, Kind.CUT})
_AWAY = frozenset({Kind.TIMEOUT, Kind.UNAVAILABLE, Kind.CUT})
_ASKERS = frozenset({Kind.CONTEXT_TOO_LONG, Kind.CONTENT_FILTER, Kind.REFUSED})

# Words of providers, in their `code`, `type` or message.
_TOO_LONG = re.compile(
    r"context_length_exceeded|context[_ ](length|window|size)|maximum context|prompt is too long"
    r"|(input|prompt).{0,40}too (long|large)|too many (input )?tokens"
    r"|exceeds? .{0,40}(tokens|context)"
    r"|string_above_max_length|range of input length",
    re.IGNORECASE,
)
_FILTERED = re.compile(
    r"content[_ ]?filter|content[_ ]management|responsible[_ ]?ai|data_inspection_failed"
    r"|content[_ ]policy|safety",
    re.IGNORECASE,
)
_UNPAID = re.compile(r"insufficient_quota|billing|insufficient (balance|credit)", re.IGNORECASE)
_SLOW_DOWN = re.compile(r"rate_?limit|too many requests|throttl|tokens_?per_?min", re.IGNORECASE)
_KEY = re.compile(r"invalid_api_key|authenticat|unauthori[sz]ed|permission", re.IGNORECASE)
_BUSY = re.compile(r"overloaded|server_?error|internal|unavailable|timeout|capacity", re.IGNORECASE)

_ADVICE: Mapping[Kind, str] = {
    Kind.AUTHENTICATION: "the provider refuses the model's API key; an operator must set another",
    Kind.QUOTA: "the provider's quota is used up; an operator must see to it",
    Kind.NOT_FOUND: "the provider does not know the model, or nothing is served at its base URL; "
    "an operator must set its name or base URL",
    Kind.RATE_LIMITED: "the provider asks for fewer calls",
    Kind.CONTEXT_TOO_LONG: "the messages do not fit the model's context window",
    Kind.CONTENT_FILTER: "the provider refuses the content",
    Kind.REFUSED: "the provider refuses the request",
    Kind.TIMEOUT: "the provider sends nothing",
    Kind.UNAVAILABLE: "the provider is away or failed",
    Kind.CUT: "the answer broke off",
    Kind.BAD_ANSWER: "the provider sent something that is no answer",
}
_OPAQUE = re.compile(r"Bearer\s+[^\s\"',;]+|\bsk-[A-Za-z0-9_\-.]{4,}", re.IGNORECASE)
_HIDDEN = "[hidden]"
_EXCERPT_CHARACTERS = 500
_LOOKED_AT_CHARACTERS = 20_000
# Shorter ones could be ordinary words; the provider has none of these.
_SHORTEST_SECRET = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """What is known of a failure.

    Attributes:
        kind: What kind it is.
        message: What the provider says, or what was seen, before secrets are hidden in it.
        status: The provider's HTTP status, or that of an error within its stream; None: none.
        code: The provider's code or type; empty: none.
        param: What of the request the provider names; empty: nothing.
        retry_after_seconds: When the provider wants to be called again; None: it does not say.
    """

    kind: Kind
    message: str
    status: int | None = None
    code: str = ""
    param: str = ""
    retry_after_seconds: float | None = None


class ProviderFailure(Exception):
    """A call to a provider failed. It never leaves this package: `told` is what leaves.

    Attributes:
        detail: What is known of it.
        has_begun: Whether something of the answer had come.
    """

    has_begun = False

    def __init__(self, detail: Detail) -> None:
        # Its text may have a secret in it, and is in no traceback.
        super().__init__(detail.kind)
        self.detail = detail

    @property
    def is_worth_trying(self) -> bool:
        """Whether the same call may succeed now or soon."""
        return self.detail.kind in _WORTH_TRYING


def failed(kind: Kind, message: str) -> ProviderFailure:
    """Return a failure that no provider speaks of."""
    return ProviderFailure(Detail(kind=kind, message=message))


def failure_of_body(
    body: str, *, status: int, retry_after_seconds: float | None = None
) -> ProviderFailure:
    """Return the failure that an answer with an error's status is.

    Args:
        body: Its body, or the beginning of it: JSON, HTML, anything.
        status: Its status.
        retry_after_seconds: What its headers say.
    """
    try:
        content: Any = json.loads(body)
    except (ValueError, RecursionError):
        content = body
    detail = _read(content, status)
    return ProviderFailure(replace(detail, retry_after_seconds=retry_after_seconds))


def failure_of_record(content: object) -> ProviderFailure:
    """Return the failure that a record of a stream tells of."""
    detail = _read(content, None)
    wait = content.get("retry_after") if isinstance(content, Mapping) else None
    if isinstance(wait, int | float) and not isinstance(wait, bool) and wait >= 0:
        detail = replace(detail, retry_after_seconds=float(wait))
    return ProviderFailure(detail)


def refuses(failure: ProviderFailure, name: str) -> bool:
    """Return whether a provider refuses a request, and names a part of it."""
    detail = failure.detail
    return detail.kind is Kind.REFUSED and (name == detail.param or name in detail.message)


def told(failure: ProviderFailure, model_id: str, *, secrets: tuple[str, ...] = ()) -> HostError:
    """Return what the one who asked is told: never a secret, never more than an excerpt.

    Args:
        failure: What happened.
        model_id: The catalogue's id of the model.
        secrets: What must not be in it.
    """
    detail = failure.detail
    said = excerpt(detail.message, secrets)
    facts = {"resource": model_id, "model_id": model_id, "model_error": str(detail.kind)}
    if failure.has_begun:
        facts["answer_begun"] = "true"
    if detail.status is not None:
        facts["provider_status"] = str(detail.status)
    if said:
        facts["provider_message"] = said
    if detail.code:
        facts["provider_code"] = excerpt(detail.code, secrets)
    if detail.kind in _ASKERS:
        param = excerpt(detail.param, secrets) or "messages"
        error: HostError = InvalidArgument([FieldFault(param, _ADVICE[detail.kind], said or "it")])
        error.facts |= facts
        return error
    message = f"model {model_id!r}: {_ADVICE[detail.kind]}{_quoted(detail.status, said)}"
    wait = detail.retry_after_seconds
    if detail.kind is Kind.RATE_LIMITED:
        return RateLimited(message, facts=facts, retry_after_seconds=wait)
    if detail.kind in _AWAY:
        return Unavailable(message, facts=facts, retry_after_seconds=wait)
    return HostError(message, facts=facts)


def excerpt(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Return the beginning of a text in one line, with every secret hidden."""
    hidden = [secret for secret in secrets if len(secret) >= _SHORTEST_SECRET]
    is_cut = len(text) > _LOOKED_AT_CHARACTERS
    text = text[:_LOOKED_AT_CHARACTERS]
    for secret in hidden:
        text = text.replace(secret, _HIDDEN)
    if is_cut and hidden:
        # Half a secret may stand where it was cut.
        text = text[: -max(map(len, hidden))]
    line = " ".join(_OPAQUE.sub(_HIDDEN, text).split())
    line = "".join(character if character.isprintable() else "\ufffd" for character in line)
    return line if len(line) <= _EXCERPT_CHARACTERS else f"{line[:_EXCERPT_CHARACTERS]}…"


def _quoted(status: int | None, said: str) -> str:
    if status is not None and said:
        return f": {status}: {said}"
    return f": {status if status is not None else said}" if status is not None or said else ""


def _read(content: object, status: int | None) -> Detail:
    """Read what a provider says, in any of the shapes that they have for it."""
    error: Any = content
    if isinstance(content, Mapping):
        error = content.get("error") or content
    message, code, kind, param = _text(error), "", "", ""
    if isinstance(error, Mapping):
        message = _first(error, "message", "detail", "error", "msg") or _text(error)
        code, kind, param = (_first(error, name) for name in ("code", "type", "param"))
        status = status if status is not None else _status(error)
    words = " ".join(each for each in (code, kind, message) if each)
    return Detail(
        kind=_kind(status, code, words), message=message, status=status, code=code or kind,
        param=param,
    )  # fmt: skip


def _kind(status: int | None, code: str, words: str) -> Kind:
    if status in (401, 403) and not _FILTERED.search(code):
        return Kind.AUTHENTICATION
    if status == 402 or _UNPAID.search(words):
        return Kind.QUOTA
    if status == 429 or (status is None and _SLOW_DOWN.search(words)):
        return Kind.RATE_LIMITED
    if status is not None and (status in (408, 409) or status >= 500):
        return Kind.UNAVAILABLE
    if status == 413 or _TOO_LONG.search(words):
        return Kind.CONTEXT_TOO_LONG
    if _FILTERED.search(words):
        return Kind.CONTENT_FILTER
    if status == 404:
        return Kind.NOT_FOUND
    if status is not None:
        return Kind.REFUSED if status >= 400 else Kind.BAD_ANSWER
    return Kind.AUTHENTICATION if _KEY.search(code) and not _BUSY.search(code) else Kind.UNAVAILABLE


def _status(error: Mapping[str, Any]) -> int | None:
    for name in ("status", "status_code", "code"):
        value = error.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600:
            return value
    return None


def _first(error: Mapping[str, Any], *names: str) -> str:
    for name in names:
        value = error.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return str(value)
    return ""


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return ""
