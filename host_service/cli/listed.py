"""What `runmesh runners list` may be told to list."""

from enum import StrEnum


class Listed(StrEnum):
    """What there is to list of a mesh."""

    RUNNERS = "runners"
    INSTANCES = "instances"
    FAULTS = "faults"
