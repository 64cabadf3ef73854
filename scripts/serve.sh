#!/bin/sh
# Becomes the MCP server of the clone that this file lies in; sets the clone up the first time.
# For hosts, which start it; nothing but the server itself writes to stdout.
set -eu

root=$(CDPATH='' cd -P -- "$(dirname -- "$0")/.." && pwd -P)
own=$root/.venv/bin/gpu-tenant

say() { printf 'gpu-tenant: %s\n' "$*" >&2; }

[ ! -x "$own" ] || exec "$own" serve "$@"

# Nothing else of that name is started: whatever PATH finds first may be anybody's.
if [ ! -f "$root/pyproject.toml" ]; then
  say "not installed, and no clone to install from: pip install gpu-tenant, or clone its repository;"
  say "a host is told of an installed one by its own path: gpu-tenant install HOST"
  exit 1
fi
pinned=$root/scripts/requirements.lock   # every package with its hashes: no other bytes are installed

# One setup at a time, however many hosts start at once; a lock whose owner died is taken over.
lock=$root/.venv.lock
while ! mkdir "$lock" 2>/dev/null; do
  [ -d "$lock" ] || { say "cannot write to $root: install gpu-tenant with pip instead"; exit 1; }
  owner=$(cat "$lock/pid" 2>/dev/null || echo)
  if [ -n "$owner" ] && ! kill -0 "$owner" 2>/dev/null; then rm -rf "$lock"; continue; fi
  [ ! -x "$own" ] || exec "$own" serve "$@"
  sleep 1
done
echo $$ >"$lock/pid"
trap 'rm -rf "$lock"' EXIT
trap 'exit 143' HUP INT TERM

if [ ! -x "$own" ]; then
  say "first start: setting up $root/.venv; if the host gives up meanwhile, start it again"
  if command -v uv >/dev/null; then
    uv venv -q --allow-existing --python '>=3.11' "$root/.venv" >&2
    uv pip install -q --python "$root/.venv/bin/python" --require-hashes -r "$pinned" >&2
    uv pip install -q --python "$root/.venv/bin/python" --no-deps --no-build-isolation -e "$root" >&2
  else
    for python in python3 python3.14 python3.13 python3.12 python3.11 none; do
      "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
    done
    if [ "$python" = none ]; then
      say "needs Python 3.11 or newer, or uv: install one, then start again"
      exit 1
    fi
    "$python" -m venv "$root/.venv" >&2
    pip() { "$root/.venv/bin/python" -m pip -q --disable-pip-version-check "$@" >&2; }
    pip install --require-hashes -r "$pinned"
    pip install --no-deps --no-build-isolation -e "$root"
  fi
fi
rm -rf "$lock"
exec "$own" serve "$@"
