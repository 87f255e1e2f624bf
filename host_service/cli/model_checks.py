"""What `runmesh doctor` looks at of models: which there are, and whether anything answers there."""

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from host_service.cli.connection import call_host
from host_service.cli.failures import CommandError
from host_service.cli.findings import Finding, Findings, fine, problem, warning
from host_service.cli.model_display import fetch_models, is_rehearsal
from host_service.cli.options import Target
from host_service.cli.running_host import RunningHost
from host_service.environment_model import MODEL_NAME, EnvironmentModel

if TYPE_CHECKING:
    from runmesh.admin.v1 import admin_pb2

_AREA = "models"
_OPENAI = "https://api.openai.com/v1"
_CONNECT_SECONDS = 3.0
_PORTS = {"http": 80, "https": 443}


def check_models(
    folder: Path, host: RunningHost | None, environment: Mapping[str, str] = os.environ
) -> Findings:
    """Which models a host has, and whether their addresses take connections; none is called."""
    if host is None:
        yield from _check_environment(environment)
        return
    try:
        models = call_host(Target(data_folder=folder), fetch_models)
    except CommandError as error:
        yield warning(_AREA, "the host does not tell its models", str(error))
        return
    yield from _check_each(models)


def _check_environment(environment: Mapping[str, str]) -> Findings:
    try:
        model = EnvironmentModel.read(environment)
    except ValueError as error:
        yield problem(_AREA, str(error), "mend it, or unset it")
        return
    if model is None:
        return
    named = model.model_name or f"one that its list names ({MODEL_NAME} chooses)"
    yield from _reached(f"the environment's model, {named}", model.base_url)


def _check_each(models: "Sequence[admin_pb2.Model]") -> Iterator[Finding]:
    enabled = [model for model in models if model.enabled]
    for model in enabled:
        if is_rehearsal(model):
            advice = "'runmesh models add', or OPENAI_API_KEY in the host's environment"
            told = f"{model.id} is a rehearsal: no language model is behind it"
            yield warning(_AREA, told, advice) if len(enabled) == 1 else fine(_AREA, told)
        elif not model.base_url and not model.has_api_key:
            advice = f"'runmesh models add {model.id} --api-key-stdin ...' stores it"
            yield problem(_AREA, f"{model.id} has no API key", advice)
        else:
            yield from _reached(model.id, model.base_url or _OPENAI)


def _reached(name: str, base_url: str) -> Findings:
    parts = urlsplit(base_url)
    place = (parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0))
    try:
        socket.create_connection(place, timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        told = f"{name}: {place[0]}:{place[1]} takes no connection ({error.strerror or error})"
        # It may be reached by a proxy, which this look does not take.
        yield warning(_AREA, told, "start what serves it, or look at the network")
    else:
        yield fine(_AREA, f"{name}: {place[0]}:{place[1]} takes connections")
