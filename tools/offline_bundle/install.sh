#!/bin/sh
# sh install.sh FOLDER: installs hpclab from this bundle into the new FOLDER, without a network.
# PYTHON names the Python to use, if python3.X and python3 are not the one.
set -eu

say() { echo "install.sh: $*" >&2; }
fail() { say "$*"; exit 1; }

here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 1 ] || fail "name one folder to install into: sh $0 FOLDER"
[ ! -e "$1" ] || fail "$1 exists; name a new folder"
setting() { sed -n "s/^$1=//p" "$here/settings"; }
wanted=$(setting python)
extras=$(setting extras)
excluded=$(setting excluded)

say "checking sums"
(cd "$here" && sha256sum --quiet --strict -c SHA256SUMS) || fail "the bundle is damaged: copy the files named above again"

find_python() {
    for candidate in ${PYTHON:-"python$wanted" python3}; do
        version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        [ "$version" = "$wanted" ] && { echo "$candidate"; return; }
    done
    return 1
}
python=$(find_python) || fail "the bundle is for Python $wanted, and ${PYTHON:-python$wanted} is not; set PYTHON"

mkdir -p "$1"
folder=$(cd "$1" && pwd)
trap '[ -e "$folder/.bundle" ] && rm -rf "$folder/.bundle"' EXIT
mkdir "$folder/.bundle"
for first in "$here"/wheels/*.part-000; do
    [ -e "$first" ] || continue
    whole=$(basename "$first" .part-000)
    cat "$here/wheels/$whole".part-* >"$folder/.bundle/$whole"
done
if [ -s "$here/SHA256SUMS.joined" ]; then
    (cd "$folder/.bundle" && sha256sum --quiet --strict -c "$here/SHA256SUMS.joined") || fail "a file in parts is damaged"
fi

tar -xzf "$here/source.tar.gz" -C "$folder" --strip-components=1
cp "$here/constraints.txt" "$folder/constraints.txt"
if [ -n "$excluded" ]; then
    say "using this Python's own $excluded"
    "$python" -m venv --system-site-packages "$folder/.venv"
fi
address() { "$python" -c 'import pathlib, sys; print(pathlib.Path(sys.argv[1]).as_uri())' "$1"; }
PIP_FIND_LINKS="$(address "$here/wheels") $(address "$folder/.bundle")"
export PIP_FIND_LINKS PIP_NO_INDEX=1 PIP_CONFIG_FILE=/dev/null PYTHON="$python"
unset PIP_CONSTRAINT PIP_INDEX_URL PIP_EXTRA_INDEX_URL
"$folder/tools/run" --version
if [ -n "$extras" ]; then
    "$folder/.venv/bin/python" -m pip install --quiet -c "$folder/constraints.txt" -e "$folder[$extras]"
fi
say "installed: $folder/tools/run"
