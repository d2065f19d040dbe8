"""The socket in the data directory, `DATA_DIR/.plog.sock`: commands with `--data-dir` reach the broker by it, as the
owner of the directory, who may do everything. It needs no listener and no password.

The file is its owner's alone (mode 0600), and the system says which user connects: that must be the broker's user, or
root. The directory's lock proves that nobody else serves, so the socket of a killed broker is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path

from core.files.owner_socket_file import CREDENTIALS, OWNER_SOCKET, Peer, owner_socket_path

_MODE = 0o600


class OwnerListener:
    """Listens from construction to `close`; owned by the broker's task."""

    def __init__(self, directory: Path, backlog: int) -> None:
        """Raises OSError if the system, or the file system, has no such sockets."""
        if not hasattr(socket, "SO_PEERCRED"):
            raise OSError(errno.EOPNOTSUPP, "this system does not say which user connects")
        self._folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._remove()
            os.fchmod(self.socket.fileno(), _MODE)  # the file gets it, whatever the umask is
            self.socket.bind(owner_socket_path(directory, self._folder))
            self._ensure_private()
            self.socket.listen(backlog)
        except BaseException:
            self.close()
            raise
        self.socket.setblocking(False)

    def _ensure_private(self) -> None:
        """Raises OSError if the file system does not keep modes."""
        found = os.lstat(OWNER_SOCKET, dir_fd=self._folder)
        if not stat.S_ISSOCK(found.st_mode) or stat.S_IMODE(found.st_mode) != _MODE or found.st_uid != os.geteuid():
            raise OSError(errno.EPERM, f"its mode is {stat.filemode(found.st_mode)} of user id {found.st_uid}")

    def _remove(self) -> None:
        """Removes the socket, or a link in its place; raises OSError for any other file."""
        with contextlib.suppress(FileNotFoundError):
            kind = os.lstat(OWNER_SOCKET, dir_fd=self._folder).st_mode
            if not (stat.S_ISSOCK(kind) or stat.S_ISLNK(kind)):
                raise OSError(errno.EEXIST, "another file has that name")
            os.unlink(OWNER_SOCKET, dir_fd=self._folder)

    def close(self) -> None:
        """Removes the file. May be called again."""
        if self._folder < 0:
            return
        self.socket.close()
        with contextlib.suppress(OSError):  # of a disk that failed
            self._remove()
        os.close(self._folder)
        self._folder = -1


def find_intruder(sock: socket.socket) -> int | None:
    """Returns the user id of the process at the other end if it may not be the owner, or None."""
    peer = Peer(*CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)))
    return None if peer.uid in (0, os.geteuid()) else peer.uid
