"""Tests of `host_service.models.failures`: what providers say, and what is told of it."""

import json

import pytest

from host_service.models.failures import Kind, excerpt, failure_of_body, failure_of_record, told
from host_service.status import status_of


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, {"code": "context_length_exceeded"}, Kind.CONTEXT_TOO_LONG),
        (400, {"message": "Input is too long for requested model"}, Kind.CONTEXT_TOO_LONG),
        (400, {"message": "the request exceeds the available context size"}, Kind.CONTEXT_TOO_LONG),
        (400, {"message": "Range of input length should be [1, 30720]"}, Kind.CONTEXT_TOO_LONG),
        (400, {"code": "data_inspection_failed"}, Kind.CONTENT_FILTER),
        (
            400,
            {"message": "The response was filtered", "code": "content_filter"},
            Kind.CONTENT_FILTER,
        ),
        (400, {"message": "unknown field"}, Kind.REFUSED),
        (401, {"message": "context length of your key"}, Kind.AUTHENTICATION),
        (403, {"code": "content_filter"}, Kind.CONTENT_FILTER),
        (429, {"message": "too many tokens per minute"}, Kind.RATE_LIMITED),
        (429, {"type": "insufficient_quota"}, Kind.QUOTA),
        (500, {"message": "maximum context length exceeded"}, Kind.UNAVAILABLE),
        (529, {"type": "overloaded_error"}, Kind.UNAVAILABLE),
        (404, {"code": "model_not_found"}, Kind.NOT_FOUND),
        (302, {}, Kind.BAD_ANSWER),
    ],
)
def test_kind_of_an_answer(status: int, error: dict[str, str], kind: Kind) -> None:
    for body in (json.dumps({"error": error}), json.dumps(error)):
        detail = failure_of_body(body, status=status).detail
        assert (detail.kind, detail.status) == (kind, status)


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        ({"error": {"code": 429}}, Kind.RATE_LIMITED),
        ({"error": {"code": "502", "message": "no"}}, Kind.UNAVAILABLE),
        ({"error": {"status": 400, "message": "no"}}, Kind.REFUSED),
        ({"error": {"type": "rate_limit_error"}}, Kind.RATE_LIMITED),
        ({"error": {"code": "invalid_api_key"}}, Kind.AUTHENTICATION),
        ({"error": {"code": "context_length_exceeded"}}, Kind.CONTEXT_TOO_LONG),
        ({"error": {"type": "overloaded_error"}}, Kind.UNAVAILABLE),
        ({"error": "who knows"}, Kind.UNAVAILABLE),
        ({"error": True}, Kind.UNAVAILABLE),
        ({"error": [1, {"a": None}]}, Kind.UNAVAILABLE),
    ],
)
def test_kind_of_a_record(record: object, kind: Kind) -> None:
    assert failure_of_record(record).detail.kind == kind


@pytest.mark.parametrize("body", ["", "<html>", "[", "null", "[" * 100_000, "\ud800", "{}"])
def test_whatever_a_body_is_it_is_told(body: str) -> None:
    error = told(failure_of_body(body, status=500), "m")
    assert error.facts["provider_status"] == "500"
    assert status_of(error).ByteSize() < 8192


def test_secrets_are_hidden_and_texts_short() -> None:
    text = 'Bearer abc.def-123 "sk-proj-0123456789" and k-secret-1\n\x00' + "x" * 1000
    line = excerpt(text, ("k-secret-1", "x"))
    assert line.startswith('[hidden] "[hidden]" and [hidden] \ufffdxxx')
    assert len(line) < 600


def test_secret_that_is_cut_by_the_excerpt_is_hidden_before_it() -> None:
    secret = "k-secret-0123456789"
    for spaces in range(19_900, 20_100):
        assert "k-se" not in excerpt(" " * spaces + secret, (secret,))
        assert "k-se" not in excerpt("x" * (spaces - 19_500) + secret, (secret,))
