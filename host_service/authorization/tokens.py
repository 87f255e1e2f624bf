"""The two tokens of a run: the run's own, which dies with it, and that of the plugin's instance."""

from __future__ import annotations

from dataclasses import dataclass

from host_service.authorization.secrets import RUN_TOKEN_PREFIX, hash_secret, new_secret
from host_service.authorization.snapshot import Snapshot
from host_service.errors import Unauthenticated

# One text for every way to fail: what is wrong with a token is told to nobody who does not have a
# good one.
_REFUSED = "the run token or the instance token is missing, wrong, or of a run that has ended"


@dataclass(frozen=True, slots=True)
class _Issued:
    snapshot: Snapshot
    instance_hash: bytes


class RunTokens:
    """Issues, checks and revokes run tokens; keeps their hashes, while runs are active."""

    def __init__(self) -> None:
        self._issued: dict[bytes, _Issued] = {}

    def __len__(self) -> int:
        return len(self._issued)

    def issue(self, *, snapshot: Snapshot, instance_token: str) -> str:
        """Return a new token for a run, good only together with the token of its instance."""
        token = new_secret(RUN_TOKEN_PREFIX)
        self._issued[hash_secret(token)] = _Issued(snapshot, hash_secret(instance_token))
        return token

    def revoke(self, token: str) -> None:
        """End a token; one that has ended already stays so."""
        self._issued.pop(hash_secret(token), None)

    def check(self, *, authorization: str | None, instance_token: str | None) -> Snapshot:
        """Return the rights of the run that both tokens name.

        Raises:
            Unauthenticated: Either is missing or wrong, the run has ended, or the instance is
                another's.
        """
        scheme, _, token = (authorization or "").partition(" ")
        issued = (
            self._issued.get(hash_secret(token.strip())) if scheme.lower() == "bearer" else None
        )
        # Both hashes are of secrets with 256 random bits: comparing them tells nothing by its time.
        if (
            issued is None
            or not instance_token
            or issued.instance_hash != hash_secret(instance_token)
        ):
            raise Unauthenticated(_REFUSED)
        return issued.snapshot
