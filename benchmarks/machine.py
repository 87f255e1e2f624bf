"""The machine that was measured on, and how busy it was."""

import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import grpc


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine at a moment.

    Attributes:
        time: The moment.
        processors: How many processors this process may use.
        load: Its load average of the last minute: more than the processors, and others share them.
        system: Operating system and processor family.
        python: Version of Python.
        grpc: Version of gRPC.
    """

    time: datetime
    processors: int
    load: float
    system: str
    python: str
    grpc: str

    @classmethod
    def now(cls) -> "Machine":
        """Looks at this machine."""
        return cls(
            time=datetime.now(UTC),
            processors=os.cpu_count() or 1,
            load=os.getloadavg()[0],
            system=f"{platform.system()} {platform.machine()}",
            python=platform.python_version(),
            grpc=grpc.__version__,
        )

    def __str__(self) -> str:
        return (
            f"{self.processors} processors, {self.system}, Python {self.python}, gRPC {self.grpc}"
        )

    def to_json(self) -> dict[str, Any]:
        """Returns it for the report."""
        return asdict(self) | {"time": self.time.isoformat()}
