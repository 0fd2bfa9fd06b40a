# What the findings have in common: a directory, a server that ends with the script, and clients in Python.
#
# A script sources it, starts its server in the background at `$port`, and sets `server` to its process.

place=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$place"' EXIT
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$(dirname "${BASH_SOURCE[0]}")"

# Runs a command. Only if it fails its output is shown, and the script ends with 2.
prepare() {
    "$@" >"$place/prepare.log" 2>&1 || { cat "$place/prepare.log"; exit 2; }
}
