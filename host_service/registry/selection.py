"""Which instance takes a run: the least busy, and for a session the one that had its last run."""

from collections import OrderedDict
from collections.abc import Collection, Iterable

from host_service.registry.instance import Instance
from host_service.registry.records import InstanceState

#: Of so many sessions it is remembered where they were, unless it is said otherwise.
REMEMBERED_SESSIONS = 10_000


class Selection:
    """Chooses among instances, and remembers where sessions are.

    A session's instance is forgotten when it is lost, and when so many other sessions had a run
    since. The session is then as a new one: its next run goes to the least busy instance.

    Args:
        remembered_sessions: How many; the longest unused is forgotten first.
    """

    def __init__(self, *, remembered_sessions: int = REMEMBERED_SESSIONS) -> None:
        self._remembered_sessions = remembered_sessions
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
        # What a developer works on takes the runs of the others, even if they wait for it.
        serving = [each for each in serving if each.development] or serving
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

    def forget(self, instance: Instance) -> None:
        """No session is on this instance any more: it is lost."""
        token = instance.instance_token
        for session in [each for each, home in self._homes.items() if home == token]:
            del self._homes[session]

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
        if len(self._homes) > self._remembered_sessions:
            self._homes.popitem(last=False)
