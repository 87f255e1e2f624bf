"""A process with a registry and a supervisor in it, made to be killed.

Arguments: the folder of plugin folders, and the folder of their homes. It prints a line with the
plugins' process ids when all have settled.
"""

import asyncio
import sys
from pathlib import Path

import uvloop

from tests.integration.plugins.mesh import Mesh


async def main() -> None:
    """Starts the plugins, says so, and stays."""
    mesh = Mesh(Path(sys.argv[1]), Path(sys.argv[2]))
    await mesh.supervisor.start()
    await mesh.supervisor.settled(20)
    processes = [str(each.process_id) for each in mesh.registry.instances()]
    sys.stdout.write(" ".join(processes) + "\n")
    sys.stdout.flush()
    await asyncio.sleep(3600)


if __name__ == "__main__":
    uvloop.run(main())
