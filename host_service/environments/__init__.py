"""The environments of Python plugins: built ahead of start, shared by content, collected."""

from host_service.environments.building import build
from host_service.environments.errors import (
    BuildFailed,
    EnvironmentProblem,
    RequirementsInvalid,
    SdkUnavailable,
)
from host_service.environments.interpreters import interpreters_of
from host_service.environments.requirements import Requirements
from host_service.environments.shelf import (
    Environment,
    EnvironmentShelf,
    KeptEnvironment,
    Lease,
)

__all__ = [
    "BuildFailed",
    "Environment",
    "EnvironmentProblem",
    "EnvironmentShelf",
    "KeptEnvironment",
    "Lease",
    "Requirements",
    "RequirementsInvalid",
    "SdkUnavailable",
    "build",
    "interpreters_of",
]
