"""Tests of `host_service.authorization.tokens` and of the secrets they are made of."""

import re

import pytest

from host_service.authorization.secrets import (
    API_KEY_PREFIX,
    INSTANCE_TOKEN_PREFIX,
    RUN_TOKEN_PREFIX,
    hash_secret,
    new_secret,
)
from host_service.authorization.snapshot import EventIdentity, Snapshot
from host_service.authorization.tokens import RunAccess, RunTokens
from host_service.errors import Unauthenticated
from host_service.limits import Limits

INSTANCE = "rmi_instance"


NOWHERE = EventIdentity(
    workspace="",
    bot="",
    source="api",
    event_id="event-1",
    conversation_id="",
    thread_id="",
    conversation_key="",
    actor_type="",
    actor_id="",
    subject_type="",
    subject_id="",
)


def rights(run_id: str = "run-1", plugin_id: str = "acme/desk") -> Snapshot:
    return Snapshot(
        run_id=run_id,
        plugin_id=plugin_id,
        runner_id=f"plugin:{plugin_id}/default",
        agent_id="default",
        identity=NOWHERE,
        permissions={},
        storage=frozenset(),
        actions=frozenset(),
        capabilities=frozenset(),
        state_keys={},
        wider_history=False,
    )


def refused(tokens: RunTokens, authorization: str | None, instance: str | None) -> str:
    """Return the words of a refusal; fail if there is none."""
    with pytest.raises(Unauthenticated) as raised:
        tokens.check(authorization=authorization, instance_token=instance)
    return raised.value.message


def test_both_tokens_together_give_the_rights_of_their_run() -> None:
    tokens = RunTokens(limits=Limits())
    mine = tokens.issue(snapshot=rights("run-1"), instance_token=INSTANCE)
    other = tokens.issue(snapshot=rights("run-2"), instance_token=INSTANCE)
    for token, run_id in ((mine, "run-1"), (other, "run-2")):
        for scheme in ("Bearer", "bearer"):
            found = tokens.check(authorization=f"{scheme} {token}", instance_token=INSTANCE)
            assert found.snapshot.run_id == run_id


def test_every_way_to_lack_a_token_is_refused_in_the_same_words() -> None:
    tokens = RunTokens(limits=Limits())
    token = tokens.issue(snapshot=rights(), instance_token=INSTANCE)
    ended = tokens.issue(snapshot=rights("run-2"), instance_token=INSTANCE)
    tokens.revoke(ended)
    words = {
        refused(tokens, authorization, instance)
        for authorization, instance in [
            (None, None),
            (None, INSTANCE),
            ("", INSTANCE),
            (f"Bearer {token}", None),
            (f"Bearer {token}", ""),
            # A plugin's other instance, or another plugin's.
            (f"Bearer {token}", "rmi_another"),
            (f"Bearer {token}", token),
            (f"Bearer {INSTANCE}", INSTANCE),
            (f"Bearer {token[:-1]}", INSTANCE),
            (f"Bearer {token}x", INSTANCE),
            ("Bearer ", INSTANCE),
            (token, INSTANCE),
            (f"Basic {token}", INSTANCE),
            (f"Bearer {ended}", INSTANCE),
        ]
    }
    assert len(words) == 1


def test_token_dies_with_its_run_and_with_no_other() -> None:
    tokens = RunTokens(limits=Limits())
    mine = tokens.issue(snapshot=rights("run-1"), instance_token=INSTANCE)
    other = tokens.issue(snapshot=rights("run-2"), instance_token=INSTANCE)
    tokens.revoke(mine)
    tokens.revoke(mine)
    tokens.revoke("rmr_never issued")
    refused(tokens, f"Bearer {mine}", INSTANCE)
    assert (
        tokens.check(authorization=f"Bearer {other}", instance_token=INSTANCE).snapshot.run_id
        == "run-2"
    )
    tokens.revoke(other)
    assert len(tokens) == 0


def test_tokens_are_not_kept_as_they_are() -> None:
    tokens = RunTokens(limits=Limits())
    token = tokens.issue(snapshot=rights(), instance_token=INSTANCE)
    kept = repr(vars(tokens))
    assert token not in kept
    assert INSTANCE not in kept


@pytest.mark.parametrize("prefix", [API_KEY_PREFIX, RUN_TOKEN_PREFIX, INSTANCE_TOKEN_PREFIX])
def test_secret_has_256_random_bits_behind_its_prefix(prefix: str) -> None:
    secrets = {new_secret(prefix) for _ in range(100)}
    assert len(secrets) == 100
    assert all(re.fullmatch(re.escape(prefix) + "[A-Za-z0-9_-]{43}", each) for each in secrets)


def test_hash_tells_secrets_apart_and_is_no_secret_itself() -> None:
    assert hash_secret("rmk_a") != hash_secret("rmk_b")
    assert hash_secret("rmk_a") == hash_secret("rmk_a")
    assert len(hash_secret("rmk_a")) == 32


def test_run_may_call_200_times_at_once_and_100_times_a_second() -> None:
    now = 0.0
    tokens = RunTokens(limits=Limits(), monotonic=lambda: now)

    def opened(run_id: str) -> RunAccess:
        token = tokens.issue(snapshot=rights(run_id), instance_token=INSTANCE)
        return tokens.check(authorization=f"Bearer {token}", instance_token=INSTANCE)

    def at_once(access: RunAccess) -> int:
        made = 0
        while not access.rate.take():
            made += 1
        return made

    one, other = opened("run-1"), opened("run-2")
    assert at_once(one) == 200
    assert one.rate.take() == pytest.approx(0.01)
    now = 1.0
    assert at_once(one) == 100
    now = 1.05
    assert at_once(one) == 5
    now = 3600.0
    # Rest is not saved up beyond a burst.
    assert at_once(one) == 200
    assert at_once(other) == 200
