"""Listeners, as `listeners` and `advertised.listeners` name them: NAME://HOST:PORT.

`listener.security.protocol.map` has the protocol of each, by its name. Listeners in `controller.listener.names` are for
the controllers of a cluster: clients do not use them, and plog does not open them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.common.endpoint import Endpoint, parse_endpoint
from core.common.errors import UsageError

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""By the numbers that registrations have (org.apache.kafka.common.security.auth.SecurityProtocol)."""
SAME_PROTOCOLS = "listener.security.protocol.map must say the same at all brokers"
"""A hint about a broker's listener that another broker finds with another protocol."""
_LIKE_A_PROTOCOL = re.compile("SASL|SSL|TLS|SCRAM")
DEFAULT_PROTOCOL_MAP = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
"""As in Kafka's DescribeConfigs."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener for clients; `protocol` is None if its name is not in the map. Immutable."""

    name: str
    protocol: str | None
    address: str

    @classmethod
    def plaintext_at(cls, endpoint: Endpoint, name: str = PLAINTEXT) -> Listener:
        return cls(name, PLAINTEXT, str(endpoint))

    @property
    def endpoint(self) -> Endpoint:
        """Raises UsageError if the address is not HOST:PORT."""
        return parse_endpoint(self.address)

    @property
    def is_plaintext(self) -> bool:
        return self.protocol == PLAINTEXT

    @property
    def is_sasl(self) -> bool:
        return self.protocol is not None and self.protocol.startswith("SASL_")

    @property
    def has_tls(self) -> bool:
        return self.protocol is not None and self.protocol.endswith("SSL")

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def parse_client_listeners(texts: Sequence[str], protocol_map: str, controller_names: Sequence[str]) -> list[Listener]:
    """Returns the listeners of `texts` that are for clients. Raises UsageError for an invalid map, and for two
    listeners with the same name.

    Names and protocols are not case-sensitive, as in Kafka.
    """
    protocols = _parse_protocol_map(protocol_map)
    for_controllers = {name.strip().upper() for name in controller_names}
    listeners = []
    for text in texts:
        name, _, address = text.strip().partition("://")
        name = name.upper()
        if name not in for_controllers:
            listeners.append(Listener(name, protocols.get(name), address))
    ensure_names_differ(listeners)
    return listeners


def _parse_protocol_map(text: str) -> dict[str, str]:
    protocols = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        name, separator, protocol = entry.rpartition(":")
        if not separator:
            raise UsageError(
                f"listener.security.protocol.map: {entry!r} is no NAME:PROTOCOL", hint="for example EXTERNAL:PLAINTEXT"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def listener_properties(texts: Sequence[str], protocol_map: str) -> dict[str, str]:
    """Returns the properties for NAME://HOST:PORT on the command line: a name that is not in the map is PLAINTEXT.
    Raises UsageError for anything else, and for such a name that promises TLS or a login.
    """
    protocols = _parse_protocol_map(protocol_map)
    unknown = []
    for text in texts:
        name, separator, address = text.strip().partition("://")
        if not separator or not name or "," in text:
            raise UsageError(f"{text!r} is no NAME://HOST:PORT", hint="for example INTERNAL://127.0.0.1:9093")
        parse_endpoint(address)
        if name.upper() not in protocols:
            if _LIKE_A_PROTOCOL.search(name.upper()):
                raise UsageError(
                    f"{text}: listener.security.protocol.map has no {name.upper()}, expected {', '.join(PROTOCOLS)} or "
                    "another name",
                    hint=f"--set listener.security.protocol.map={name.upper()}:SASL_SSL, if this is its name",
                )
            unknown.append(f"{name.upper()}:{PLAINTEXT}")
    properties = {"listeners": ",".join(texts)}
    if unknown:
        properties["listener.security.protocol.map"] = ",".join(filter(None, [protocol_map, *unknown]))
    return properties


def ensure_names_differ(listeners: Sequence[Listener]) -> None:
    """Raises UsageError if two of them have the same name."""
    names = [listener.name for listener in listeners]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"each listener needs a name of its own, and {twice} is there twice: {','.join(map(str, listeners))}",
            hint="for example INTERNAL://127.0.0.1:9092,EXTERNAL://127.0.0.1:9093",
        )


def ensure_addresses_differ(listeners: Sequence[Listener]) -> None:
    """Raises UsageError if two of them have the same port of the same host, or of one host and of all."""
    for number, one in enumerate(listeners):
        for other in listeners[:number]:
            at, others = one.endpoint, other.endpoint
            is_of_all = at.is_wildcard or others.is_wildcard
            is_same_host = at.host == others.host or (is_of_all and (":" in at.host) == (":" in others.host))
            if at.port and at.port == others.port and is_same_host:
                raise UsageError(
                    f"each listener needs an address of its own, and {one} has that of {other}",
                    hint="give each a port of its own",
                )
