"""The beginning of a connection: while a port keeps silent, the user is told which one we wait for."""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from core.common.endpoint import Endpoint, address_error

if TYPE_CHECKING:
    from core.client.net.address_map import AddressMap

SILENCE_SECONDS = 3.0
"""Silence of a port after which the user is told."""

_ACCEPT_SECONDS = 7.0
"""The timeout of a connection: that the first packet is lost three times is hardly chance."""

SILENCE_HINT = "it accepts connections and says nothing: is it the port of a Kafka broker, and is the broker well?"

_logger = logging.getLogger("plog.client")

_Address = tuple[str, int]
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)  # poll asks nothing of the system to be made


def is_readable(plain: socket.socket, seconds: float) -> bool:
    """Returns whether there is something to read, or the end, within that time."""
    with _Selector() as selector:
        selector.register(plain, selectors.EVENT_READ)
        return bool(selector.select(max(seconds, 0)))


def open_socket(address: _Address, timeout_s: float) -> socket.socket:
    """Connects, with that timeout. Raises OSError if it can't, also for an impossible address: a server may have
    advertised it.
    """
    if not 0 < address[1] < 1 << 16:
        raise OSError(errno.EINVAL, "there is no such port")  # the system would take another one
    try:
        plain = socket.create_connection(address, timeout=timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return plain
    except ValueError as error:
        raise address_error(error) from error


def is_this_machine(host: str) -> bool:
    """Returns whether the host is this machine, in any notation: 127.1, localhost., x.localhost (RFC 6761)."""
    with contextlib.suppress(OSError, ValueError):
        host = socket.inet_ntoa(socket.inet_aton(host))
    endpoint = Endpoint(host.rstrip("."), 0)
    return endpoint.is_loopback or endpoint.is_wildcard or endpoint.host.lower().endswith(".localhost")


def place_text(address: _Address, target: _Address) -> str:
    """Writes an address, and where it can be reached from here if that is elsewhere."""
    name = str(Endpoint(*address))
    return name if target == address else f"{name} (at {Endpoint(*target)})"


class ConnectNotice:
    """Connects, and waits for the first bytes that come; may be used by several threads."""

    def __init__(self, routes: AddressMap | None = None) -> None:
        self.routes = routes
        """Where addresses can be reached from here; None if they are where they say."""
        self._warned: set[tuple[_Address, str]] = set()
        self.silent: set[_Address] = set()
        """The addresses that were silent for so long at the last try."""

    def target(self, address: _Address) -> _Address:
        """Returns where the address can be reached from here."""
        return address if self.routes is None else self.routes.find(address)

    def note_advertised(self, brokers: Mapping[int, _Address]) -> None:
        """Remembers the addresses that a server advertises, by broker. Raises what `AddressMap` raises."""
        if self.routes is not None:
            self.routes.note_advertised(brokers.values())

    def where(self, address: _Address) -> str:
        """Returns the address for people, and where it can be reached if that is elsewhere."""
        return place_text(address, self.target(address))

    def connect(self, address: _Address, timeout_s: float, *, is_hasty: bool = False) -> socket.socket:
        """Connects, with that timeout. Raises OSError if it can't; if it `is_hasty`, after a few seconds already."""
        target = self.target(address)
        if timeout_s <= SILENCE_SECONDS:
            return open_socket(target, timeout_s)
        try:
            plain = open_socket(target, SILENCE_SECONDS)
        except TimeoutError:
            self.silent.add(address)
            if is_hasty:
                raise
            self._warn(address, "has not accepted the connection yet")
            plain = open_socket(target, min(timeout_s, _ACCEPT_SECONDS) - SILENCE_SECONDS)
        plain.settimeout(timeout_s)
        return plain

    def wait(self, plain: socket.socket, address: _Address, *, has_tls: bool, is_hasty: bool = False) -> None:
        """Waits until there is something to read, or the end. After some seconds it tells the user, and probes the
        port: raises ConnectionFailedError for another protocol than ours. Raises TimeoutError after the socket's
        timeout; if it `is_hasty`, after those seconds.
        """
        timeout_s = plain.gettimeout()
        assert timeout_s is not None
        deadline_s = time.monotonic() + timeout_s
        if is_readable(plain, min(SILENCE_SECONDS, timeout_s)):
            self.silent.discard(address)
            return
        self.silent.add(address)
        if timeout_s > SILENCE_SECONDS:
            if is_hasty:
                raise TimeoutError
            self._warn(address, "accepted the connection and has not answered; is it a Kafka broker?")
            from core.client.net.port_probe import find_speech, speaks

            speech = find_speech(self.target(address), has_tls=has_tls, timeout_s=timeout_s)
            if speech is not None:
                raise speaks(self.where(address), speech)
        if not is_readable(plain, deadline_s - time.monotonic()):
            raise TimeoutError

    def pass_over(self, address: _Address, following: _Address) -> None:
        """Reports which address is asked instead of a silent one."""
        self._say(address, f"{self.where(address)} does not answer; asking {self.where(following)}")

    def _warn(self, address: _Address, what: str) -> None:
        self._say(address, f"waiting for {self.where(address)}, which {what}")

    def _say(self, address: _Address, text: str) -> None:
        if (address, text) not in self._warned:
            self._warned.add((address, text))
            _logger.warning("%s", text)
