#!/usr/bin/env bash
# Writes the Python code of the contract to proto/gen/python below the folder given (the work tree
# when none is). Stale files go, since buf.gen.yaml says clean.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly destination=${1:-.}
.venv/bin/buf generate --output "$destination"
# The type stubs are part of what is shipped (PEP 561); each portion of a namespace says so itself.
find "$destination/proto/gen/python" -name '*_pb2.py' -exec dirname {} + | sort -u |
    while IFS= read -r folder; do : >"$folder/py.typed"; done
