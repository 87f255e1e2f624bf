"""What the agent itself says to people, in the languages that it knows."""

from collections.abc import Mapping, Sequence
from typing import Final

from runmesh.v1.context_pb2 import MODEL_ABILITY_VISION, ModelResource

from runner_sdk import RunContext

_ENGLISH: Final = "en"
_UNSEEN: Mapping[str, str] = {
    _ENGLISH: "[I cannot look at images: {names}. The model {model} works with text only.]",
    "zh": "[我无法查看图片: {names}。模型 {model} 只能处理文本。]",
}
_NOT_SHOWN: Mapping[str, str] = {
    _ENGLISH: "[I could not look at these images: {names}.]",
    "zh": "[我未能查看这些图片: {names}。]",
}
_TOOL_LIMIT: Mapping[str, str] = {
    _ENGLISH: "[I stopped after {rounds} rounds of tool calls without coming to an answer.]",
    "zh": "[我在 {rounds} 轮工具调用后停止, 未能得出答案。]",
}
_MOST_NAMES = 5


def unseen_images(ctx: RunContext, names: Sequence[str], model: ModelResource) -> str:
    """Returns what people are told when the model is not shown their images."""
    shown = ", ".join(names[:_MOST_NAMES])
    if len(names) > _MOST_NAMES:
        shown += f" (+{len(names) - _MOST_NAMES})"
    wording = _NOT_SHOWN if MODEL_ABILITY_VISION in model.abilities else _UNSEEN
    return wording[_language(ctx)].format(names=shown, model=model.model_id)


def tool_limit(ctx: RunContext, rounds: int) -> str:
    """Returns what people are told when a model only calls tools and never answers."""
    return _TOOL_LIMIT[_language(ctx)].format(rounds=rounds)


def _language(ctx: RunContext) -> str:
    language = ctx.proto.runtime.locale.replace("-", "_").partition("_")[0].lower()
    return language if language in _UNSEEN else _ENGLISH
