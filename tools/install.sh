# Sourced by tools/run and tools/test: installs hpclab into .venv when it is missing or out of date.
# What it says goes to stderr, so that the output of `tools/run config schema` can be piped.

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)

say() { echo "hpclab: $*" >&2; }

# Print the first Python that is 3.11 or newer: $PYTHON, or else python3 and then the versions by name.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    local found="there is no ${PYTHON:-python3}"
    command -v "${PYTHON:-python3}" >/dev/null && found="${PYTHON:-python3} is $("${PYTHON:-python3}" -V 2>&1)"
    say "needs Python 3.11 or newer, and $found. Name one: PYTHON=/path/to/python3.11 $0"
    return 1
}

# install_hpclab [EXTRA]: does nothing when the last installation was from the same files. Safe when two run at once.
install_hpclab() {
    local extra=${1:-} python fingerprint stamp
    fingerprint=$({ echo "$root"; cat "$root/pyproject.toml" "$root/constraints.txt"; } | cksum)
    stamp="$root/.venv/installed${extra:+-$extra}"
    [[ -x $root/.venv/bin/hpclab && $(cat "$stamp" 2>/dev/null) == "$fingerprint" ]] && return

    mkdir -p "$root/.venv"
    exec 9>"$root/.venv/lock"
    if ! flock -n 9; then
        say "waiting for another installation into $root/.venv"
        flock 9
    fi
    if [[ ! -x $root/.venv/bin/hpclab || $(cat "$stamp" 2>/dev/null) != "$fingerprint" ]]; then
        if [[ ! -x $root/.venv/bin/python ]] || ! "$root/.venv/bin/python" -m pip --version >/dev/null 2>&1; then
            python=$(find_python) || exit 2
            say "making $root/.venv with $("$python" -V)"
            if ! "$python" -m venv "$root/.venv" >&2; then
                say "cannot make a virtual environment; on Debian: apt-get install python3-venv"
                exit 2
            fi
        fi
        say "installing hpclab${extra:+[$extra]} with constraints.txt into $root/.venv (the first time: a minute or more)"
        "$root/.venv/bin/python" -m pip install --quiet --disable-pip-version-check \
            -c "$root/constraints.txt" -e "$root${extra:+[$extra]}" >&2 || { say "pip failed; see above"; exit 1; }
        echo "$fingerprint" >"$root/.venv/installed"
        echo "$fingerprint" >"$stamp"
    fi
    exec 9>&-
}

# Kernels that warp compiles are kept between runs.
export WARP_CACHE_PATH=${WARP_CACHE_PATH:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/hpclab/warp}
