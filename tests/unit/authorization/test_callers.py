"""Tests of `host_service.authorization.callers`, over real stores and a clock that is set."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from host_service.authorization.callers import Caller, CallerDirectory, Role
from host_service.authorization.secrets import hash_secret
from host_service.errors import Unauthenticated, Unauthorized
from stores import Stores
from stores.records import ApiKeyRecord

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "rmk_of the laptop"
KEY = ApiKeyRecord(
    key_id="key-1", name="laptop", hash=hash_secret(SECRET), role="ingress", created_at=NOON
)


class Clock:
    """Tells the time it is set to."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def callers(stores: Stores, clock: Clock) -> CallerDirectory:
    return CallerDirectory(keys=stores.keys, clock=clock)


async def refused(callers: CallerDirectory, authorization: str | None) -> str:
    """Return the words of a refusal; fail if there is none."""
    with pytest.raises(Unauthenticated) as raised:
        await callers.identify(authorization)
    return raised.value.message


async def test_key_tells_its_role_and_its_reach(callers: CallerDirectory, stores: Stores) -> None:
    await stores.keys.create(replace(KEY, workspace="acme", bot="desk"))
    await callers.reload()
    expected = Caller("key-1", Role.INGRESS, "acme", "desk")
    for authorization in (f"Bearer {SECRET}", f"bearer {SECRET}", f"Bearer  {SECRET} "):
        assert await callers.identify(authorization) == expected


async def test_key_that_another_host_made_is_found_at_its_first_use(
    callers: CallerDirectory, stores: Stores
) -> None:
    await callers.reload()
    await stores.keys.create(KEY)
    assert (await callers.identify(f"Bearer {SECRET}")).key_id == "key-1"


async def test_unknown_expired_and_revoked_keys_are_refused_in_the_same_words(
    callers: CallerDirectory, stores: Stores, clock: Clock
) -> None:
    await stores.keys.create(replace(KEY, expires_at=NOON + timedelta(hours=1)))
    gone = replace(KEY, key_id="key-2", hash=hash_secret("rmk_gone"))
    await stores.keys.create(gone)
    await stores.keys.revoke("key-2", NOON)
    await callers.reload()
    clock.now = NOON + timedelta(hours=1)
    words = {
        await refused(callers, f"Bearer {secret}")
        for secret in ("rmk_never made", SECRET, "rmk_gone", hash_secret(SECRET).hex())
    }
    assert len(words) == 1


async def test_key_holds_until_the_moment_it_expires(
    callers: CallerDirectory, stores: Stores, clock: Clock
) -> None:
    await stores.keys.create(replace(KEY, expires_at=NOON + timedelta(hours=1)))
    clock.now = NOON + timedelta(minutes=59, seconds=59)
    assert (await callers.identify(f"Bearer {SECRET}")).key_id == "key-1"
    clock.now += timedelta(seconds=1)
    await refused(callers, f"Bearer {SECRET}")


async def test_revoked_key_is_refused_once_the_directory_has_heard_of_it(
    callers: CallerDirectory, stores: Stores
) -> None:
    await stores.keys.create(KEY)
    await callers.reload()
    await callers.identify(f"Bearer {SECRET}")
    await stores.keys.revoke("key-1", NOON)
    await callers.reload()
    await refused(callers, f"Bearer {SECRET}")


@pytest.mark.parametrize("authorization", [None, "", SECRET, "Bearer", "Bearer ", "Basic abc"])
async def test_what_is_no_bearer_key_is_refused_with_a_word_on_the_form(
    callers: CallerDirectory, stores: Stores, authorization: str | None
) -> None:
    await stores.keys.create(KEY)
    await callers.reload()
    words = await refused(callers, authorization)
    assert "Bearer <key>" in words
    assert SECRET not in words


async def test_keys_are_not_kept_as_they_are(callers: CallerDirectory, stores: Stores) -> None:
    await stores.keys.create(KEY)
    await callers.reload()
    await callers.identify(f"Bearer {SECRET}")
    assert SECRET not in repr(vars(callers))


@pytest.mark.parametrize(
    ("caller", "workspace", "bot", "reaches"),
    [
        (Caller("k", Role.VIEWER), "acme", "desk", True),
        (Caller("k", Role.VIEWER), "", "", True),
        (Caller("k", Role.VIEWER, "acme"), "acme", "any", True),
        (Caller("k", Role.VIEWER, "acme"), "other", "any", False),
        (Caller("k", Role.VIEWER, "acme"), "", "", False),
        (Caller("k", Role.VIEWER, "", None), "", "desk", True),
        (Caller("k", Role.VIEWER, "", None), "acme", "desk", False),
        (Caller("k", Role.VIEWER, None, "desk"), "acme", "desk", True),
        (Caller("k", Role.VIEWER, None, "desk"), "acme", "other", False),
        (Caller("k", Role.OPERATOR, "acme", "desk"), "acme", "other", False),
    ],
)
def test_key_reaches_what_lies_within_all_of_its_limits(
    caller: Caller, workspace: str, bot: str, *, reaches: bool
) -> None:
    assert caller.reaches(workspace=workspace, bot=bot) is reaches


def test_role_that_will_not_do_is_refused_with_those_that_would() -> None:
    wanted = frozenset({Role.INGRESS, Role.OPERATOR})
    for role in wanted:
        Caller("k", role).require(wanted, "Dispatch")
    with pytest.raises(Unauthorized, match=r"Dispatch needs .* ingress or operator; .* viewer"):
        Caller("k", Role.VIEWER).require(wanted, "Dispatch")
