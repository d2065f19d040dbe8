"""`.plog-login-secret`: 32 random bytes of a data directory, which only its owner may read.

The broker makes salts of them for names that no user has (core/security/sasl/server_steps.py). If the file is lost, it
gets another one: a client that asked before could tell those names then, and nothing else happens.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from core.common.filesystem import FileSystem
from core.common.salvaging_file import read_small_file

LOGIN_SECRET = ".plog-login-secret"  # noqa: S105 - a name
LOGIN_SECRET_BYTES = 32

_OWNERS = 0o600


def read_or_make_login_secret(directory: Path, filesystem: FileSystem) -> bytes:
    """Raises OSError, and UnreadableFileError for a file that is there and can't be read."""
    path = directory / LOGIN_SECRET
    with contextlib.suppress(FileNotFoundError):
        if len(known := read_small_file(path)) == LOGIN_SECRET_BYTES:
            return known
    beside = path.with_name(path.name + ".tmp")  # where `write_atomic` writes
    filesystem.unlink(beside)
    filesystem.make_file(beside)
    beside.chmod(_OWNERS)
    secret = os.urandom(LOGIN_SECRET_BYTES)
    filesystem.write_atomic(path, secret)
    return secret
