# Sourced by the other scripts: `make_venv EXTRA` makes .venv and installs plog into it with that extra, editable,
# in the versions of requirements.lock. With uv where it is on the PATH, else with python3 and pip. Quick when nothing
# changed.
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

make_venv() {
  local extra=$1 stamp want
  stamp=.venv/.plog-$extra
  want=$(cat pyproject.toml requirements.lock | cksum)
  if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
    return
  fi
  if command -v uv >/dev/null 2>&1; then
    echo "Installing plog[$extra] into .venv with uv ..." >&2
    [ -x .venv/bin/python ] || uv venv --quiet --python "${PYTHON:->=3.11}" .venv
    uv pip install --quiet --python .venv/bin/python --constraint requirements.lock --editable ".[$extra]"
  else
    echo "Installing plog[$extra] into .venv with pip (the first time takes some minutes) ..." >&2
    [ -x .venv/bin/python ] || "$(find_python)" -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable ".[$extra]"
  fi
  echo "$want" >"$stamp"
}
