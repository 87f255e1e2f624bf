"""Tests of `host_service.configuration.webhooks`: what is read, and every fault with its line."""

import pytest

from host_service.configuration import ConfigurationError, read_configuration
from host_service.configuration.webhooks import DeclaredWebhook

ENVIRONMENT = {"DESK_SECRET": "a secret", "EMPTY": ""}


def read(text: str) -> tuple[DeclaredWebhook, ...]:
    found = read_configuration(text.encode(), source="f.yaml", environment=ENVIRONMENT)
    return tuple(found.webhooks)


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as told:
        read(text)
    return [str(fault) for fault in told.value.faults]


def one(**changes: str | None) -> str:
    """A webhook with some of its values written otherwise, or left out."""
    values: dict[str, str | None] = {
        "action": "ticket.create",
        "url": "https://desk.example/hook?room=1",
        "secret": "{env: DESK_SECRET}",
    }
    given = {name: value for name, value in (values | changes).items() if value is not None}
    return "webhooks:\n- " + "\n  ".join(f"{name}: {value}" for name, value in given.items())


def test_webhook_is_read_with_its_secret_from_the_environment() -> None:
    assert read(one(timeout="2m")) == (
        DeclaredWebhook(
            action="ticket.create",
            url="https://desk.example/hook?room=1",
            secret="a secret",
            timeout_seconds=120.0,
        ),
    )
    assert read(one())[0].timeout_seconds == 10.0


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080/hook",
        "http://localhost/hook",
        "http://[::1]:1/",
        "https://10.0.0.1/hook",
        "HTTPS://desk.example",
    ],
)
def test_address_may_be_on_this_machine_or_go_over_tls(url: str) -> None:
    assert read(one(url=f'"{url}"'))[0].url == url


def test_address_without_tls_must_be_allowed() -> None:
    url = "http://desk.internal/hook"
    assert read(one(url=url, insecure="true"))[0].url == url
    (fault,) = faults(one(url=url, insecure="false"))
    assert fault == (
        "f.yaml:3: webhooks[0].url: must be https, unless it is on this machine or insecure is true"
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"action": None}, "webhooks[0].action: must be there"),
        ({"url": None}, "webhooks[0].url: must be there"),
        ({"secret": None}, "webhooks[0].secret: must be there"),
        ({"action": '""'}, "webhooks[0].action: must be 1 to 100 bytes"),
        ({"action": "x" * 101}, "webhooks[0].action: must be 1 to 100 bytes"),
        ({"secret": "hunter2"}, "a file is no place for a secret"),
        ({"secret": "{env: ABSENT}"}, "the environment variable ABSENT is not set"),
        ({"secret": "{env: EMPTY}"}, "the environment variable EMPTY is empty"),
        ({"timeout": "soon"}, "webhooks[0].timeout: must be a number with a unit"),
        ({"timeout": "0s"}, "must be more than 0 and at most 300 s"),
        ({"timeout": "6m"}, "must be more than 0 and at most 300 s"),
        ({"retries": "3"}, "webhooks[0].retries: is not known"),
        ({"insecure": "maybe"}, "must be true or false"),
        ({"url": "desk.example/hook"}, "must be an http or https URL with a host"),
        ({"url": "ftp://desk.example"}, "must be an http or https URL with a host"),
        ({"url": '"https:///hook"'}, "must be an http or https URL with a host"),
        ({"url": '"https://desk.example:port/"'}, "is no URL"),
        ({"url": '"https://[::1/"'}, "is no URL"),
        ({"url": '"https://ann:pw@desk.example/"'}, "must have no user, password or fragment"),
        ({"url": '"https://desk.example/#a"'}, "must have no user, password or fragment"),
        ({"url": '"https://desk.example/a b"'}, "must be ASCII without spaces"),
        ({"url": '"https://desk.example/é"'}, "must be ASCII without spaces"),
        ({"url": r'"https://desk.example/\r\nx: y"'}, "must be ASCII without spaces"),
    ],
)
def test_fault_is_told(changes: dict[str, str | None], told: str) -> None:
    found = faults(one(**changes))
    assert len(found) == 1
    assert told in found[0]
    assert "hunter2" not in found[0]


def test_two_webhooks_of_one_action_are_a_fault_and_all_faults_are_told_at_once() -> None:
    text = one() + "\n" + one().partition("\n")[2] + "\n- {action: other}\n"
    assert faults(text) == [
        "f.yaml:5: webhooks[1].action: 'ticket.create' is also webhooks[0]",
        "f.yaml:8: webhooks[2].url: must be there",
        "f.yaml:8: webhooks[2].secret: must be there",
    ]
