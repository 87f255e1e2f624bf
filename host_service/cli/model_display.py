"""Models, and how they answered, for people."""

from collections.abc import Sequence

from google.protobuf.duration_pb2 import Duration
from runmesh.admin.v1 import admin_pb2, models_pb2
from runmesh.v1 import context_pb2

from host_service.cli.connection import CALL_SECONDS, HostConnection
from host_service.cli.display import print_facts, print_table, words, yes_or_no
from host_service.cli.paging import collect

_LONGEST_ANSWER = 500


async def fetch_models(host: HostConnection) -> Sequence[admin_pb2.Model]:
    """Reads all models of a host."""

    async def page(size: int, token: str) -> tuple[Sequence[admin_pb2.Model], str]:
        answer = await host.admin.ListModels(
            admin_pb2.ListModelsRequest(page_size=size, page_token=token),
            metadata=host.metadata,
            timeout=CALL_SECONDS,
        )
        return answer.models, answer.next_page_token

    return await collect(page)


def is_rehearsal(model: admin_pb2.Model) -> bool:
    """Whether no language model is behind a model."""
    return model.provider == "rehearsal"


def print_models(models: Sequence[admin_pb2.Model]) -> None:
    """Prints models, one a line."""
    print_table(
        ["MODEL", "KIND", "PROVIDER", "NAME THERE", "WINDOW", "API KEY", "ORIGIN", "ENABLED"],
        [_row(model) for model in models],
        empty="no models",
    )


def _row(model: admin_pb2.Model) -> list[str]:
    window = str(model.context_window_tokens) if model.HasField("context_window_tokens") else ""
    provider = f"{model.provider} (no language model)" if is_rehearsal(model) else model.provider
    if is_rehearsal(model):
        key = "not needed"
    elif not model.has_api_key:
        key = "not set"
    else:
        key = "from environment" if _is_of_environment(model) else "set"
    return [
        model.id,
        words(context_pb2.ModelKind, model.kind),
        provider,
        model.model_name or "(asked at its first use)",
        window,
        key,
        words(models_pb2.ModelOrigin, model.origin),
        yes_or_no(model.enabled),
    ]


def _is_of_environment(model: admin_pb2.Model) -> bool:
    return bool(model.origin == models_pb2.MODEL_ORIGIN_ENVIRONMENT)


def print_trial(model_id: str, tried: models_pb2.TestModelResponse) -> None:
    """Prints how a model answered."""
    facts = [("model", model_id), ("answered as", tried.response_model)]
    kind = tried.WhichOneof("tried")
    if kind == "chat":
        facts += _chat_facts(tried.chat)
    elif kind == "embedding":
        facts.append(("dimension", str(tried.embedding.dimension)))
    facts += [("total", _seconds(tried.total)), ("usage", _usage(tried))]
    print_facts(facts)
    if kind == "rerank":
        rows = [[f"{each.score:.3f}", each.text] for each in tried.rerank.documents]
        print_table(["SCORE", "DOCUMENT"], rows, after_blank_line=True)


def _chat_facts(chat: models_pb2.ChatTried) -> list[tuple[str, str]]:
    text = chat.text
    shown = text if len(text) <= _LONGEST_ANSWER else f"{text[:_LONGEST_ANSWER]}…"
    called = ""
    if chat.HasField("called_tool"):
        called = "called the one it was asked for" if chat.called_tool else "called none when asked"
    return [
        ("answer", shown.replace("\n", " ")),
        ("ended", chat.finish_reason),
        ("tools", called),
        ("first token", _seconds(chat.first_token) if chat.HasField("first_token") else "none"),
    ]


def _seconds(duration: Duration) -> str:
    return f"{duration.ToMicroseconds() / 1e6:.3f} s"


def _usage(tried: models_pb2.TestModelResponse) -> str:
    if not tried.HasField("usage"):
        return "unknown"
    usage, told = tried.usage, []
    if usage.HasField("input_tokens"):
        told.append(f"{usage.input_tokens} tokens in")
    if usage.HasField("output_tokens"):
        told.append(f"{usage.output_tokens} tokens out")
    return ", ".join(told) or "unknown"
