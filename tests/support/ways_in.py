"""How the world's clients come in at an address: the same credentials by each client's own settings.

A test says once what an address needs, `WAYS[address] = way`; whoever makes a client asks `librdkafka(address)` and so
on. An address of which nothing is said is open to everybody.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_MODULES = {"PLAIN": "plain.PlainLoginModule"}
_SCRAM_MODULE = "scram.ScramLoginModule"


@dataclass(frozen=True)
class Way:
    """With TLS if there is a `ca`; `mechanism`, `user` and `password` if SASL is asked for, `certificate` (a PEM file
    of the key and the certificates) if the client shows one.
    """

    ca: Path | None = None
    mechanism: str = ""
    user: str = ""
    password: str = ""
    certificate: Path | None = None
    properties: Path | None = None
    """The settings of `java` in a file, where there is one."""

    @property
    def protocol(self) -> str:
        return ("SASL_" if self.mechanism else "") + ("SSL" if self.ca else "PLAINTEXT")

    def java(self) -> dict[str, str]:
        """As Java's clients, Spark's connector and plog's commands have them."""
        found = {"security.protocol": self.protocol}
        if self.ca:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if self.certificate:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.certificate)}
        if self.mechanism:
            module = f"org.apache.kafka.common.security.{_MODULES.get(self.mechanism, _SCRAM_MODULE)}"
            login = f'{module} required username="{self.user}" password="{self.password}";'
            found |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": login}
        return found

    def write_java(self, path: Path, **more: str) -> Path:
        """Writes a client.properties."""
        return write_properties(path, {**self.java(), **more})

    def librdkafka(self) -> dict[str, str]:
        found = {"security.protocol": self.protocol}
        if self.ca:
            found["ssl.ca.location"] = str(self.ca)
        if self.certificate:
            found |= {"ssl.certificate.location": str(self.certificate), "ssl.key.location": str(self.certificate)}
        if self.mechanism:
            found |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        return found

    def python(self) -> dict[str, Any]:
        """As kafka-python and aiokafka have it."""
        found: dict[str, Any] = {"security_protocol": self.protocol}
        if self.ca:
            context = ssl.create_default_context(cafile=str(self.ca))
            if self.certificate:
                context.load_cert_chain(self.certificate)
            found["ssl_context"] = context
        if self.mechanism:
            found |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password,
            }
        return found

    def environment(self) -> dict[str, str]:
        """As the programs in Go and JavaScript read it."""
        return {"PLOG_TESTS_WAY": json.dumps({name: str(value) for name, value in asdict(self).items() if value})}


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    """Writes a file as Java reads it, which takes a byte for a character, and `\\uXXXX` for one of all others."""
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    path.write_text("".join(c if c.isascii() else f"\\u{ord(c):04x}" for c in text))
    path.chmod(0o600)
    return path


WAYS: dict[str, Way] = {}


def librdkafka(address: str) -> dict[str, str]:
    return {"bootstrap.servers": address, **(WAYS[address].librdkafka() if address in WAYS else {})}


def python(address: str) -> dict[str, Any]:
    return {"bootstrap_servers": address, **(WAYS[address].python() if address in WAYS else {})}


def plog_options(address: str) -> list[str]:
    """Options of plog's commands; Kafka's tools take them, too."""
    properties = WAYS[address].properties if address in WAYS else None
    return ["--bootstrap-server", address, *(["--command-config", str(properties)] if properties else [])]


def spark_options(address: str) -> dict[str, str]:
    settings = {"bootstrap.servers": address, **(WAYS[address].java() if address in WAYS else {})}
    return {f"kafka.{name}": value for name, value in settings.items()}


def environment(address: str) -> Mapping[str, str]:
    return WAYS[address].environment() if address in WAYS else {}
