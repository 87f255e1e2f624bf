"""What an agent's configuration says, in the forms that the turn works with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from runmesh.v1.types_pb2 import ChatMessage

from runner_sdk.messages import Role, chat_messages

_NO_CHOICE = frozenset({"", "__none__", "__none"})
_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """An agent's configuration.

    Attributes:
        model_ids: The primary model, then its fallbacks; each once.
        prompt: The configuration's own instructions.
        top_k: How many passages the model is given at most.
        rerank_model_id: What orders passages by their relevance; empty: nothing.
        max_tool_rounds: How many rounds of tool calls there are at most.
        extra_args: Further arguments of the model, temperature included.
        history_tokens: Tokens of history at most; None: as the share says.
        history_share: Share of the model's context window that history may take, above 0, below 1.
        summary_model_id: What summarizes the older part of a conversation; empty: the model that
            answers.
    """

    model_ids: tuple[str, ...] = ()
    prompt: tuple[ChatMessage, ...] = ()
    top_k: int = 5
    rerank_model_id: str = ""
    max_tool_rounds: int = 8
    extra_args: Mapping[str, Any]
    history_tokens: int | None = None
    history_share: float = 0.5
    summary_model_id: str = ""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Reads a run's configuration; the host has checked it against the schema."""
        extra_args = config.get("extra_args")
        arguments = dict(extra_args) if isinstance(extra_args, Mapping) else {}
        if config.get("temperature") is not None:
            arguments.setdefault("temperature", config["temperature"])
        return cls(
            model_ids=_model_ids(config.get("model")),
            prompt=_prompt(config.get("prompt") or ()),
            top_k=config.get("top_k", 5),
            rerank_model_id="".join(_choices([config.get("rerank_model")])),
            max_tool_rounds=config.get("max_tool_rounds", 8),
            extra_args=arguments,
            history_tokens=config.get("history_tokens") or None,
            history_share=config.get("history_share", 0.5),
            summary_model_id="".join(_choices([config.get("summary_model")])),
        )


def _model_ids(selected: Any) -> tuple[str, ...]:
    if isinstance(selected, Mapping):
        return _choices([selected.get("primary"), *(selected.get("fallbacks") or ())])
    return _choices([selected])


def _choices(selected: Sequence[Any]) -> tuple[str, ...]:
    """Returns what was chosen, each once, in order."""
    chosen = [each for each in selected if isinstance(each, str) and each not in _NO_CHOICE]
    return tuple(dict.fromkeys(chosen))


def _prompt(entries: Sequence[Mapping[str, Any]]) -> tuple[ChatMessage, ...]:
    # Roles that a model does not know are instructions, as the host sees it too.
    return tuple(
        chat_messages(
            (_ROLES.get(str(entry.get("role")), "system"), str(entry.get("content", "")))
            for entry in entries
            if entry.get("content")
        )
    )
