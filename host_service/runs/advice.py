"""What to do next about a run that did not end well: for whoever has to mend it."""

from __future__ import annotations

from collections.abc import Mapping

from stores.records import Failure, RunRecord, RunStatus

_REPLAY = "`runmesh runs replay {run_id}`"
_REPLAY_AT = "`runmesh runs replay {run_id} --runner ADDRESS`"
_AGAIN = "The same event may succeed later: send it again, with another event id."

_ADVICE: Mapping[str, str] = {
    "runner.error": "The runner ended the run with an error of its own: look at what its process "
    f"writes, mend it, and try with {_REPLAY_AT}.",
    "runner.timeout": "The runner had not ended when its time was up: see where the time went, "
    "then give agent {agent} a longer timeout, or make quicker what the runner waits for.",
    "runner.protocol": "The runner broke the contract, and the failure names the rule: mend the "
    f"runner, and try with {_REPLAY_AT}.",
    "runner.unavailable": "No instance of the runner took the run: `runmesh runners list` shows "
    "which there are, and why one does not serve.",
    "runner.crashed": "The runner's process ended in the middle of the run: the host's log has the "
    f"last that it wrote. Mend it, and try with {_REPLAY}.",
    "runner.empty_output": "The runner ended well and said nothing. One that means to say nothing "
    'ends with finish_reason "silent".',
    "cancelled": "It was stopped from outside; the failure says why.",
    "host.restarted": "The host was lost in the middle of the run; what was shown until then is "
    "kept. The host's log of that time says more.",
    "host.overloaded": "The host had more to do than it takes.",
    "host.configuration": "The configuration of agent {agent} does not do for its runner, and the "
    "failure names every fault: mend it with `runmesh apply -f FILE`, then send the event again, "
    "with another event id.",
    "host.unavailable": "The database did not take what the run said: `runmesh doctor` looks at "
    "it, and the host's log says more.",
}
_OF_RUNNER = (
    "The runner ended the run with a code of its own, {code}: its log or its documentation says "
    "what that means."
)


def advice_for(run: RunRecord) -> str:
    """Return what to do next; empty where there is nothing to be done."""
    if not run.status.is_terminal or run.status is RunStatus.COMPLETED:
        return ""
    failure = run.failure or Failure("runner.error", "")
    text = _ADVICE.get(failure.code, _OF_RUNNER).format(
        run_id=run.run_id, agent=repr(run.agent_id), code=repr(failure.code)
    )
    return f"{text} {_AGAIN}" if failure.retryable else text
