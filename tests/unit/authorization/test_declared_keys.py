"""Tests of `host_service.authorization.declared_keys`: what declared keys make of those there."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from host_service.authorization.callers import Role
from host_service.authorization.declared_keys import DeclaredKey, KeyPlan
from host_service.authorization.secrets import hash_secret
from stores.records import ApiKeyRecord
from stores.secrets import Secret

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "s" * 32


def declared(**changes: Any) -> DeclaredKey:
    fields: dict[str, Any] = {"name": "ci", "role": Role.INGRESS, "secret": Secret(SECRET)}
    return DeclaredKey(**(fields | changes))


def stored(**changes: Any) -> ApiKeyRecord:
    key = ApiKeyRecord(
        key_id="key-1", name="ci", hash=hash_secret(SECRET), role="ingress", created_at=NOON
    )
    return replace(key, **changes)


def planned(*there: ApiKeyRecord, key: DeclaredKey | None = None) -> KeyPlan:
    plan = KeyPlan(there, now=NOON)
    plan.add(key or declared(), "keys[0]")
    return plan


def test_key_that_is_not_there_is_made() -> None:
    plan = planned(stored(key_id="other", name="other", hash=b"other"))
    (record,) = plan.records
    assert (record.name, record.role, record.hash) == ("ci", "ingress", hash_secret(SECRET))
    assert (record.workspace, record.bot, record.created_at) == (None, None, NOON)
    assert [(each.object, each.id, each.kind) for each in plan.changes] == [
        ("key", "ci", "created")
    ]


def test_key_that_is_there_already_stays_as_it_is() -> None:
    plan = planned(stored(last_used_at=NOON))
    assert (plan.records, plan.faults) == ([], [])
    assert [each.kind for each in plan.changes] == ["unchanged"]


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ({}, {"role": Role.VIEWER}, ("role", '"ingress"', '"viewer"')),
        ({}, {"workspace": "acme"}, ("workspace", None, '"acme"')),
        ({"bot": "b"}, {}, ("bot", '"b"', None)),
        ({}, {"secret": Secret("t" * 32)}, ("secret", '"***"', '"***"')),
        (
            {"expires_at": NOON + timedelta(1)},
            {},
            ("expires_at", '"2026-03-02 12:00:00+00:00"', None),
        ),
    ],
)
def test_what_differs_changes_in_place(
    before: dict[str, Any], after: dict[str, Any], field: tuple[str, str | None, str | None]
) -> None:
    plan = planned(stored(**before), key=declared(**after))
    (change,), (record,) = plan.changes, plan.records
    assert (change.kind, change.fields) == ("updated", (field,))
    assert record.key_id == "key-1"
    assert planned(record, key=declared(**after)).changes[0].kind == "unchanged"


def test_key_that_works_no_more_is_not_brought_back() -> None:
    gone = (stored(hash=b"1", revoked_at=NOON), stored(key_id="key-2", hash=b"2", expires_at=NOON))
    (record,) = planned(*gone).records
    assert record.key_id not in {"key-1", "key-2"}


@pytest.mark.parametrize("changes", [{"revoked_at": NOON}, {"name": "other"}])
def test_secret_of_another_key_or_a_revoked_one_is_refused(changes: dict[str, Any]) -> None:
    plan = planned(stored(**changes))
    (fault,) = plan.faults
    assert (fault.field, fault.rule) == ("keys[0].secret", "a secret that no other key has or had")
    assert SECRET not in str(fault)
    assert (plan.records, plan.changes) == ([], [])


def test_two_declared_keys_with_one_secret_are_refused() -> None:
    plan = KeyPlan([], now=NOON)
    plan.add(declared(), "keys[0]")
    plan.add(declared(name="two"), "keys[1]")
    assert [fault.field for fault in plan.faults] == ["keys[1].secret"]


def test_name_that_several_keys_have_says_nothing() -> None:
    plan = planned(stored(hash=b"1"), stored(key_id="key-2", hash=b"2"))
    assert [fault.field for fault in plan.faults] == ["keys[0].name"]


def test_hosts_own_key_is_not_for_a_file_to_change() -> None:
    plan = planned(stored(name="operator"), key=declared(name="operator", role=Role.OPERATOR))
    assert [fault.field for fault in plan.faults] == ["keys[0].name"]
    assert not plan.records
