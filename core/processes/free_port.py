"""Finds an address for a server that is about to be started."""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection

from core.common.endpoint import Endpoint, address_error
from core.common.errors import AccessError

_MOST_TRIED = 100


def ensure_free(listen: Endpoint) -> Endpoint:
    """Returns the address, with a free port for port 0. Raises AccessError if no server could listen there."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            listen.host or None, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return Endpoint(listen.host, probe.getsockname()[1])
    except (OSError, ValueError) as failure:
        error = address_error(failure) if isinstance(failure, ValueError) else failure
        raise AccessError(
            f"could not listen on {listen}: {(error.strerror or str(error)).lower()}",
            where=str(listen),
            hint=_hint(error, listen),
        ) from failure


def _hint(error: OSError, listen: Endpoint) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EINVAL:
        return f"{listen.host} is no name that this machine knows: --listen 127.0.0.1:{listen.port}"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{listen.host} is no address of this machine: --listen 127.0.0.1:{listen.port}"
    return f"if another server listens there, take another port: --listen {listen.host}:{listen.port + 1}"


def find_free(first: Endpoint, but_not: Collection[Endpoint] = ()) -> Endpoint:
    """Finds the first free port from that of `first` on that is not in `but_not`. Raises AccessError if no port near it
    is free.
    """
    for port in range(first.port, min(first.port + _MOST_TRIED, 65536)):
        found = Endpoint(first.host, port)
        if found not in but_not and is_free(found):
            return found
    if first in but_not:
        raise AccessError(f"no port from {first.port} on is free", where=str(first), hint="begin at another port")
    return ensure_free(first)


def is_free(listen: Endpoint) -> bool:
    try:
        ensure_free(listen)
    except AccessError:
        return False
    return True
