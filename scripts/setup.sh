#!/usr/bin/env bash
# Checks what has to be installed before anything else happens, then makes .venv from requirements.lock.
#
#   scripts/setup.sh           everything; does nothing when .venv is up to date
#   scripts/setup.sh --check   the prerequisites only
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON_VERSION=3.11
OLDEST_JAVA=17

missing=()

find_python() {
    local candidate reason=""
    for candidate in ${PYTHON:-} "python$PYTHON_VERSION" python3 python; do
        command -v "$candidate" >/dev/null || continue
        "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$PYTHON_VERSION')" 2>/dev/null || continue
        # Debian and Ubuntu ship python3 without what `python3 -m venv` needs.
        if "$candidate" -c "import ensurepip, venv" 2>/dev/null; then
            python="$candidate"
            return
        fi
        reason="$(command -v "$candidate") cannot make environments; on Debian: apt-get install python$PYTHON_VERSION-venv"
    done
    missing+=("Python $PYTHON_VERSION: ${reason:-not found as python$PYTHON_VERSION or python3; https://www.python.org/downloads \
or your package manager (apt-get install python$PYTHON_VERSION python$PYTHON_VERSION-venv, brew install python@$PYTHON_VERSION). \
Elsewhere on this machine? make PYTHON=/path/to/python$PYTHON_VERSION …}")
}

check_java() {
    # Spark takes JAVA_HOME before the PATH, so that is the one to look at.
    local java="${JAVA_HOME:+$JAVA_HOME/bin/}java" found version
    local get="apt-get install openjdk-$OLDEST_JAVA-jre-headless, brew install openjdk@$OLDEST_JAVA, or https://adoptium.net"
    if ! found=$("$java" -version 2>&1); then
        missing+=("Java $OLDEST_JAVA or newer: $java ${JAVA_HOME:+(from JAVA_HOME) }does not run; $get")
        return
    fi
    # 17.0.15, 21, 22-ea, and 1.8.0_412 for what everyone calls 8
    version=$(sed -nE '1,/version/s/.*version "(1\.)?([0-9]+).*/\2/p' <<<"$found" | head -n 1)
    if [ "${version:-0}" -lt "$OLDEST_JAVA" ]; then
        missing+=("Java $OLDEST_JAVA or newer: $(command -v "$java") is ${version:-of an unknown version}; $get")
    fi
}

find_python
check_java
if [ ${#missing[@]} -gt 0 ]; then
    echo "Tideline cannot be set up yet. Missing or too old:" >&2
    printf '  - %s\n' "${missing[@]}" >&2
    exit 1
fi
if [ "${1:-}" = --check ]; then
    exit
fi

digest() {
    "$python" -c "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
}

# Two stamps: an entry point added to setup.cfg does not install a hundred packages again.
packages=$({ "$python" -VV && cat requirements.lock; } | digest)
project=$(cat setup.cfg pyproject.toml | digest)
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

if [ "$(cat .venv/.packages 2>/dev/null)" != "$packages" ] || ! .venv/bin/python -c "" 2>/dev/null; then
    started=$SECONDS
    echo "Setting up .venv from requirements.lock with $("$python" -V), about a minute …"
    rm -rf .venv
    "$python" -m venv .venv
    .venv/bin/python -m pip install --quiet --require-hashes --requirement requirements.lock
    echo "$packages" >.venv/.packages
    echo "Packages installed in $((SECONDS - started)) s."
fi
if [ "$(cat .venv/.project 2>/dev/null)" != "$project" ]; then
    # The build backend comes from the lock as well: nothing that is not pinned is downloaded.
    .venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --no-index --editable .
    echo "$project" >.venv/.project
fi
