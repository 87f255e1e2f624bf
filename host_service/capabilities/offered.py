"""All that this host offers to runs."""

from __future__ import annotations

from dataclasses import dataclass

from host_service.capabilities.artifacts import Artifacts
from host_service.capabilities.events import Events
from host_service.capabilities.history import History
from host_service.capabilities.knowledge import Knowledge
from host_service.capabilities.models import Models
from host_service.capabilities.prompt import Prompt
from host_service.capabilities.state import State
from host_service.capabilities.steering import Steering
from host_service.capabilities.storage import Storage
from host_service.capabilities.tools import Tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What stands behind HostAPI, one noun each."""

    models: Models
    tools: Tools
    knowledge: Knowledge
    history: History
    events: Events
    artifacts: Artifacts
    state: State
    storage: Storage
    prompt: Prompt
    steering: Steering
