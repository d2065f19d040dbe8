"""Listeners, as `listeners` and `advertised.listeners` name them: NAME://HOST:PORT.

`listener.security.protocol.map` says what is spoken at each, by its name. Those that `controller.listener.names` names
are for the controllers of a cluster: no client comes there, and plog does not open them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.common.errors import UsageError

PLAINTEXT = "PLAINTEXT"
DEFAULT_PROTOCOL_MAP = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
"""As Kafka's DescribeConfigs shows it."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener for clients; `protocol` is None if the map does not know its name. Immutable."""

    name: str
    protocol: str | None
    address: str

    @property
    def is_plaintext(self) -> bool:
        return self.protocol == PLAINTEXT

    @property
    def is_sasl(self) -> bool:
        return self.protocol is not None and self.protocol.startswith("SASL_")

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def parse_client_listeners(texts: Sequence[str], protocol_map: str, controller_names: Sequence[str]) -> list[Listener]:
    """Gives the listeners of `texts` that are for clients. Raises UsageError for a map that is none.

    Names and protocols are the same in capitals and in small letters, as for Kafka.
    """
    protocols = {}
    for entry in filter(None, map(str.strip, protocol_map.split(","))):
        name, separator, protocol = entry.rpartition(":")
        if not separator:
            raise UsageError(
                f"listener.security.protocol.map: {entry!r} is no NAME:PROTOCOL", hint="for example EXTERNAL:PLAINTEXT"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    for_controllers = {name.strip().upper() for name in controller_names}
    listeners = []
    for text in texts:
        name, _, address = text.strip().partition("://")
        name = name.upper()
        if name not in for_controllers:
            listeners.append(Listener(name, protocols.get(name), address))
    return listeners
