"""A process that has loaded the SDK and waits: it becomes a plugin the moment it is told to.

`runmesh dev` keeps one beside the plugin that runs. When a file changes, what is left to do is to
load the plugin's own modules. A fork of a loaded process would do the same and break gRPC, which
has threads of its own.

Run as `python -m runner_sdk._standby GATE MODULE`: GATE is a FIFO that says `go`, or ends when
nobody wants this process any more.
"""

import importlib
import runpy
import sys

_GO = b"go\n"


def main(arguments: list[str]) -> int:
    """Waits at the gate, and runs the module as `python -m` would."""
    gate, module = arguments
    # Named here, not at the head: they are what takes its time, and nothing of them is used here.
    for name in ("runner_sdk", "runner_sdk.serve"):
        importlib.import_module(name)
    with open(gate, "rb") as waiting:  # noqa: PTH123 - pathlib adds nothing to a FIFO
        if waiting.readline() != _GO:
            return 0
    # What the author's code sees is what it would see if it had been started by itself.
    sys.argv[:] = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
