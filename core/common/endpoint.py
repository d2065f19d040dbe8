"""Addresses of servers: HOST:PORT."""

from __future__ import annotations

import errno
import ipaddress
import re
from dataclasses import dataclass

from core.common.errors import UsageError

DEFAULT_PORT = 9092
_PROTOCOL = re.compile(r"(PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://")


@dataclass(frozen=True, slots=True)
class Endpoint:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        return self.host in ("", "0.0.0.0", "::")  # noqa: S104 - it is recognised here, not bound

    @property
    def is_loopback(self) -> bool:
        """Returns whether only this machine can reach it. Of host names, only `localhost` counts."""
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            return self.host.lower() == "localhost"
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return (mapped or address).is_loopback


def address_error(error: ValueError) -> OSError:
    """Returns an OSError for Python's error about an impossible host name: UnicodeError (IDNA: a part that is empty, or
    longer than 63 bytes), or ValueError for a zero byte.
    """
    detail = ": a part of it is empty or too long" if isinstance(error, UnicodeError) else ""
    return OSError(errno.EINVAL, f"no host can have that name{detail}")


def parse_endpoint(text: str, default_port: int = DEFAULT_PORT) -> Endpoint:
    """Reads HOST:PORT, HOST, :PORT or [IPV6]:PORT; raises UsageError for anything else."""
    host, separator, port = text.rpartition(":")
    if not separator or (":" in host and not host.endswith("]")):
        host, port = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not port.isdecimal() or int(port) > 65535 or "/" in host or host.isdecimal():
        example = text if text.isdecimal() and int(text) <= 65535 else DEFAULT_PORT
        raise UsageError(f"{text!r} is no HOST:PORT", hint=f"for example 127.0.0.1:{example}")
    return Endpoint(host, int(port))


def parse_bootstrap(text: str, protocol: str | None = None) -> list[tuple[str, int]]:
    """Reads HOST:PORT[,HOST:PORT..], Kafka's bootstrap.servers; raises UsageError for anything else. Each may begin
    with a security protocol, SASL_SSL://HOST:PORT, as providers show it; it must be `protocol`, unless that is None.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise UsageError("no bootstrap server is named", hint="for example 127.0.0.1:9092")
    endpoints = [parse_endpoint(_without_protocol(part, protocol)) for part in parts]
    return [(endpoint.host or "127.0.0.1", endpoint.port) for endpoint in endpoints]


def _without_protocol(part: str, protocol: str | None) -> str:
    found = _PROTOCOL.match(part)
    if found is None:
        return part
    if protocol is not None and found[1] != protocol:
        raise UsageError(
            f"{part}: the settings have security.protocol={protocol}",
            hint=f"--command-config FILE with security.protocol={found[1]}, or the address without it",
        )
    address = part[found.end() :]
    if not address:
        raise UsageError(f"{part!r} is no HOST:PORT", hint="for example 127.0.0.1:9092")
    return address
