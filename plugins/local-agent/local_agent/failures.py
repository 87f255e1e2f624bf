"""How a run of the local agent fails, in words for people."""

from collections.abc import Sequence

from runner_sdk import HostCallError, RunFailure

NO_MODEL = "local-agent.no_model"
MODEL_FAILED = "local-agent.model_failed"
HOST_FAILED = "local-agent.host_failed"

Failed = tuple[str, HostCallError]
"""A model's id, and why it did not answer."""


def no_model(missing: Sequence[str]) -> RunFailure:
    """Returns the failure of a run that has no model to ask."""
    if missing:
        names = ", ".join(missing)
        text = f"none of the chosen models is there for this run: {names}"
    else:
        text = "no model is chosen: choose one in the agent's configuration, field `model`"
    return RunFailure(NO_MODEL, text, details={"models": ", ".join(missing)[:1000]})


def model_failed(failed: Sequence[Failed], *, said_something: bool) -> RunFailure:
    """Returns the failure of a run whose models failed; the last one's reason counts.

    Args:
        failed: The models that were asked and why each failed, in order; at least one.
        said_something: Whether the last one broke off in the middle of its answer.
    """
    model_id, error = failed[-1]
    if said_something:
        text = f"the model {model_id} broke off in its answer: {_told(error)}"
    elif len(failed) == 1:
        text = f"the model {model_id} failed: {_told(error)}"
    else:
        tried = "; ".join(f"{each}: {_told(why)}" for each, why in failed)
        text = f"none of the models answered: {tried}"
    details = {"reason": error.reason, "models": ", ".join(each for each, _ in failed)[:1000]}
    if "model_error" in error.metadata:
        details["model_error"] = error.metadata["model_error"]
    if error.retry_after_seconds is not None:
        details["retry_after_seconds"] = f"{error.retry_after_seconds:g}"
    return RunFailure(MODEL_FAILED, text, retryable=error.retryable, details=details)


def host_failed(error: HostCallError) -> RunFailure:
    """Returns the failure of a run that its host did not give what it cannot do without."""
    return RunFailure(
        HOST_FAILED,
        f"the host did not answer {error.method}: {_told(error)}",
        retryable=error.retryable,
        details={"reason": error.reason},
    )


def _told(error: HostCallError) -> str:
    return f"{error.message} ({error.reason})"
