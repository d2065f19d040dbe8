"""Listening sockets, at the addresses of listeners."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from typing import NamedTuple

from core.broker.config.broker_config import BrokerConfig
from core.broker.serving.listener_endpoints import Listener
from core.common.endpoint import Endpoint, address_error
from core.common.errors import AccessError


class BoundListener(NamedTuple):
    """A listening socket and its endpoint; `name` is that of its listener, which accepted connections belong to."""

    name: str
    socket: socket.socket
    endpoint: Endpoint
    is_owners: bool = False
    """Whether it is the socket in the data directory; its endpoint and name are those of the first listener."""


def bind_all(listeners: Sequence[Listener], config: BrokerConfig) -> list[BoundListener]:
    """Listens on all of them, at free ports for port 0. Raises AccessError, with none of them open, if an address can't
    be bound.
    """
    bound: list[BoundListener] = []
    try:
        for listener in listeners:
            one = _bind(listener, config, is_alone=len(listeners) == 1)
            bound.append(one)
    except BaseException:
        for one in bound:
            one.socket.close()
        raise
    return bound


def _bind(listener: Listener, config: BrokerConfig, *, is_alone: bool) -> BoundListener:
    endpoint = listener.endpoint
    try:
        family, _, _, _, address = socket.getaddrinfo(
            endpoint.host or None, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
    except ValueError as error:
        raise _access_error(address_error(error), endpoint) from error
    except OSError as error:
        raise _access_error(error, endpoint) from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _set_buffers(sock, config)
        sock.bind(address)
        sock.listen(config.socket_listen_backlog_size)
    except OSError as error:
        sock.close()
        failure = _access_error(error, endpoint)
        if error.errno == errno.EADDRINUSE:
            alone = f": --listen {Endpoint(endpoint.host, endpoint.port + 1)}"
            one_of_several = f" for {listener.name}, in listeners or with a --listener NAME://HOST:PORT for each"
            failure.hint = f"another server listens there; another port{alone if is_alone else one_of_several}"
        raise failure from error
    sock.setblocking(False)
    host = endpoint.host or "0.0.0.0"  # noqa: S104 - what --listen :PORT asks for
    return BoundListener(listener.name, sock, Endpoint(host, sock.getsockname()[1]))


def _set_buffers(sock: socket.socket, config: BrokerConfig) -> None:
    for option, setting in (
        (socket.SO_SNDBUF, BrokerConfig.socket_send_buffer_bytes),
        (socket.SO_RCVBUF, BrokerConfig.socket_receive_buffer_bytes),
    ):
        if setting.is_given(config) and setting.of(config) > 0:
            sock.setsockopt(socket.SOL_SOCKET, option, setting.of(config))


def _access_error(error: OSError, endpoint: Endpoint) -> AccessError:
    reason = (error.strerror or str(error)).lower()
    return AccessError(f"could not listen on {endpoint}: {reason}", where=str(endpoint))
