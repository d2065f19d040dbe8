# Sourced by the other scripts: the first two functions make a virtual environment and install plog into it with an
# extra, in the versions of requirements.lock, with uv if it is on the PATH, else with python3 and pip. Quick if nothing
# changed.
#   make_venv EXTRA        .venv, for work on plog: it runs the repository's files
#   make_demo_venv EXTRA   .venv-demo, as people install it: it runs the wheel that is built of them
#   make_tool_venv VENV PACKAGE...   an environment with these packages, and without plog
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

find_python() {
  local python
  for python in "${PYTHON:-}" python3 python3.11 python3.12 python3.13 python3.14; do
    if [ -n "$python" ] && command -v "$python" >/dev/null 2>&1 &&
      "$python" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  echo "error: no Python 3.11 or newer on the PATH (set PYTHON to name one)" >&2
  return 3
}

# The versions alone: with hashes, pip would refuse a folder, which has none.
versions() {
  sed '/--hash/d; s/ \\$//' requirements.lock
}

make_venv() {
  install_plog "$1" .venv --editable "$(cat pyproject.toml requirements.lock | cksum)"
}

make_demo_venv() {
  install_plog "$1" .venv-demo --reinstall \
    "$(cat pyproject.toml requirements.lock scripts/wheel_layout.py $(find core cli plog -type f -not -name '*.pyc' | sort) | cksum)"
}

install_plog() {
  local extra=$1 venv=$2 how=$3 want=$4 stamp
  stamp=$venv/.plog-$extra
  if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
    return
  fi
  if command -v uv >/dev/null 2>&1; then
    echo "Installing plog with its extra '$extra' into $venv with uv ..." >&2
    [ -x "$venv/bin/python" ] || uv venv --quiet --python "${PYTHON:->=3.11}" "$venv"
    [ "$how" = --editable ] || how=--reinstall-package=plog-kafka
    uv pip install --python "$venv/bin/python" --constraint <(versions) $how ".[$extra]"
  else
    echo "Installing plog with its extra '$extra' into $venv with pip (the first time takes some minutes) ..." >&2
    [ -x "$venv/bin/python" ] || "$(find_python)" -m venv "$venv"
    [ "$how" = --editable ] || "$venv/bin/python" -m pip uninstall --quiet --yes --disable-pip-version-check plog-kafka
    [ "$how" = --editable ] || how=
    "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off --constraint <(versions) \
      $how ".[$extra]" | show_progress
  fi
  echo "$want" >"$stamp"
}

# pip says a line or more for each package: a dot for each that it fetches shows that it is alive.
show_progress() {
  awk '/^Collecting/ { printf "."; fflush() } /^Installing/ { printf " unpacking ..."; fflush() } END { print "" }' >&2
}

make_tool_venv() {
  local venv=$1 stamp=$1/.installed
  shift
  if [ "$(cat "$stamp" 2>/dev/null)" = "$*" ]; then
    return
  fi
  echo "Installing $* into $venv ..." >&2
  if command -v uv >/dev/null 2>&1; then
    [ -x "$venv/bin/python" ] || uv venv --quiet --python "${PYTHON:->=3.11}" "$venv"
    uv pip install --quiet --python "$venv/bin/python" "$@"
  else
    [ -x "$venv/bin/python" ] || "$(find_python)" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
  fi
  echo "$*" >"$stamp"
}
