"""Which instance takes a run: the least busy, and for a session the one that had its last run."""

from collections import OrderedDict
from collections.abc import Collection, Iterable

from host_service.registry.instance import Instance
from host_service.registry.records import InstanceState

#: Sessions of which it is remembered where they were; the longest unused is forgotten first.
_REMEMBERED_SESSIONS = 10_000


class Selection:
    """Chooses among instances, and remembers where sessions are."""

    def __init__(self) -> None:
        self._picks = 0
        # By runner and session key: the token of the instance that had the last run. A token, so
        # that a dead instance is not kept alive by the sessions it once had.
        self._homes: OrderedDict[tuple[str, str], str] = OrderedDict()

    def choose(
        self,
        instances: Iterable[Instance],
        *,
        runner_id: str,
        session_key: str | None,
        exclude: Collection[Instance],
    ) -> Instance | None:
        """Chooses an instance that takes one more run of the runner, or None.

        A session whose instance still serves waits for a slot there rather than move.
        """
        serving = [
            instance
            for instance in instances
            if instance.state is InstanceState.SERVING
            and runner_id in instance.manifests
            and instance not in exclude
        ]
        home = self._home(serving, runner_id, session_key)
        free = [instance for instance in ([home] if home else serving) if instance.has_free_slot]
        if not free:
            return None
        chosen = min(free, key=lambda instance: (instance.active_runs, instance.last_picked))
        self._picks += 1
        chosen.last_picked = self._picks
        if session_key is not None:
            self._remember((runner_id, session_key), chosen)
        return chosen

    def _home(
        self, serving: list[Instance], runner_id: str, session_key: str | None
    ) -> Instance | None:
        if session_key is None:
            return None
        token = self._homes.get((runner_id, session_key))
        return next((each for each in serving if each.instance_token == token), None)

    def _remember(self, session: tuple[str, str], instance: Instance) -> None:
        self._homes[session] = instance.instance_token
        self._homes.move_to_end(session)
        if len(self._homes) > _REMEMBERED_SESSIONS:
            self._homes.popitem(last=False)
