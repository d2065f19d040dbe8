"""The way to the broker that serves a data directory: the socket in it, which makes its client the owner of the
directory, without a listener and without a password.

It is used only if it belongs to the process that holds the directory's lock: somebody else who may write the directory
could have put another one there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import socket
import stat
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from core.client.net.connect_notice import ConnectNotice
from core.client.net.kafka_client import Connector
from core.common.endpoint import Endpoint
from core.common.errors import AccessError, PlogError
from core.files.meta_properties import read_meta_properties
from core.files.owner_socket_file import CREDENTIALS, OWNER_SOCKET, Peer, find_holder_pid, owner_socket_path

_logger = logging.getLogger("plog.client")

_TIMEVAL = struct.Struct("@ll")
_Address = tuple[str, int]


def connect_as_owner(connector: Connector, directory: Path, addresses: Sequence[_Address]) -> None:
    """Has the connector take the socket in the directory, if there is one: the broker may be of an earlier version, or
    on a system without such sockets. `addresses`: where the directory's lock says that it listens.
    """
    with contextlib.suppress(OSError):
        if hasattr(socket, "SO_PEERCRED") and stat.S_ISSOCK((directory / OWNER_SOCKET).lstat().st_mode):
            connector.notice = OwnerNotice(connector.notice, directory, addresses)


class OwnerNotice(ConnectNotice):
    """Connects to the broker's own addresses by its socket, and to those of other brokers as they are."""

    def __init__(self, notice: ConnectNotice, directory: Path, addresses: Sequence[_Address]) -> None:
        super().__init__(notice.routes)
        self._directory = directory
        self._addresses = list(addresses)
        self._node_id: int | None = None
        with contextlib.suppress(PlogError, OSError):
            meta = read_meta_properties(directory)
            self._node_id = None if meta is None else meta.node_id

    def note_advertised(self, brokers: Mapping[int, _Address]) -> None:
        super().note_advertised(brokers)
        own = [address for node_id, address in brokers.items() if node_id == self._node_id]
        self._addresses += [address for address in own if address not in self._addresses]

    def connect(self, address: _Address, timeout_s: float, *, is_hasty: bool = False) -> socket.socket:
        """Raises AccessError if the broker is another user's."""
        found = self._connect(timeout_s) if address in self._addresses else None
        return found or super().connect(address, timeout_s, is_hasty=is_hasty)

    def _connect(self, timeout_s: float) -> socket.socket | None:
        """Returns None if no broker listens there any more, or not the one that holds the directory."""
        plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.ExitStack() as unless_used:
            unless_used.callback(plain.close)
            timeout = _TIMEVAL.pack(int(timeout_s), int(timeout_s % 1 * 1_000_000))
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)  # with settimeout, a full backlog fails
            try:
                folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                unless_used.callback(os.close, folder)
                plain.connect(owner_socket_path(self._directory, folder))
            except BlockingIOError:
                raise TimeoutError from None
            except PermissionError:
                raise self._refusal((self._directory / OWNER_SOCKET).lstat().st_uid) from None
            except (ConnectionRefusedError, FileNotFoundError):
                return None
            plain.settimeout(timeout_s)
            server = Peer(
                *CREDENTIALS.unpack(plain.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
            )
            if os.geteuid() not in (0, server.uid):
                raise self._refusal(server.uid)
            if server.pid == find_holder_pid(self._directory):
                unless_used.pop_all()
                os.close(folder)
                return plain
        _logger.warning("%s is not used: another process holds the directory", self._directory / OWNER_SOCKET)
        return None

    def _refusal(self, uid: int) -> AccessError:
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:
            name = "?"
        return AccessError(
            f"{self._directory} is served by a broker of user {name} (id {uid}), whose socket there is for that user "
            "and root alone",
            where=str(self._directory),
            hint=f"run the command as that user, or ask the broker by --bootstrap-server "
            f"{Endpoint(*self._addresses[0])}",
        )
