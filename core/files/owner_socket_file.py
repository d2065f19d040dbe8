"""`.plog.sock`: the socket of the broker that serves a data directory, for commands of the directory's owner.

Each side asks the system who the other is (`Peer`), and compares that with what else it knows: the broker its own user,
the client the process that holds the directory's lock.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import NamedTuple

from core.common.filesystem import open_regular
from core.files.directory_lock import FLOCK, held_here
from core.files.file_names import LOCK

OWNER_SOCKET = ".plog.sock"

_MOST_PATH_BYTES = 107
"""The system's limit for the path of a socket."""

CREDENTIALS = struct.Struct("3i")
"""What SO_PEERCRED of Linux says of the other end (struct ucred): pid, uid, gid."""


class Peer(NamedTuple):
    """The process at the other end of a socket, as this process sees it; 0 for one that it can't see."""

    pid: int
    uid: int
    gid: int


def owner_socket_path(directory: Path, descriptor: int) -> str:
    """Returns a path of the directory's socket that the system takes: a long one leads through the open descriptor of
    the directory.
    """
    path = str(directory / OWNER_SOCKET)
    return path if len(os.fsencode(path)) <= _MOST_PATH_BYTES else f"/proc/self/fd/{descriptor}/{OWNER_SOCKET}"


def find_holder_pid(directory: Path) -> int:
    """Finds the process that holds the directory's lock, as this process sees it: the system's word, as the holder may
    have another id in its container. 0 if there is none, or if it can't be seen.
    """
    path = directory.resolve() / LOCK
    if path in held_here:
        return os.getpid()
    try:
        fd = open_regular(path, os.O_RDONLY)
    except OSError:
        return 0
    try:
        answer = FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)))
    finally:
        os.close(fd)
    return 0 if answer[0] == fcntl.F_UNLCK else int(answer[4])
