"""Where the command `runmesh`, and `python -m host_service`, begins."""

import os
import sys


def main() -> int:
    """Runs the command line and returns its exit status."""
    # gRPC's core writes of handshakes that fail, which are told in our own words, line after line.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        # Asked by scripts and shells at every start: answered without loading the command line.
        from host_service import __version__

        print(f"runmesh {__version__}")  # noqa: T201
        return 0
    from host_service.cli.app import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
