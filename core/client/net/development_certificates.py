"""A secured broker to develop and test with: certificates, users, and settings that use them, in a folder.

server.properties                for `plog serve --config`, and for an Apache Kafka broker
client.properties                for plog, Kafka's tools and Java clients, Spark
client-NAME.properties           the same for each further user
kcat.conf                        for kcat and all that stands on librdkafka; plog takes it, too
ca.pem ca.key                    with TLS, the CA: the certificate that others trust, and its key
server.pem server.key server.p12 a server's: certificate, key, both with the CA's certificate
client.pem client.key client.p12 with SSL, a client's
"""

from __future__ import annotations

import datetime
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.common.errors import PlogError, UsageError
from core.common.filesystem import accessing
from core.common.out_file import write_whole
from core.security.certificates import Certificate, Validity, make_ca, sign
from core.security.client_settings import LOGIN_MODULES
from core.security.sasl.scram import MECHANISMS as SCRAM_MECHANISMS

STORE_PASSWORD = "changeit"  # noqa: S105 - Java's word for a key store whose file's mode is what protects it
SERVER_PORT = 9093
OWN_NAMES = ("localhost", "127.0.0.1", "::1")
_DAYS = (-1, 365)  # the clock of another machine may be behind
_PRIVATE, _PUBLIC = 0o600, 0o644
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""The names that may be a part of an option's name in a login configuration of Java's."""


class FilesExistError(PlogError):
    """Files exist already: they are somebody's, and are replaced only on request."""


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    mode: int


@dataclass(frozen=True, slots=True)
class DevelopmentSecurity:
    """What the files are for. With SASL the broker takes each user by PLAIN; one that logs in by SCRAM must be made in
    the broker, as well.
    """

    protocol: str = "SSL"
    """Kafka's name: SSL, where clients have a certificate, SASL_SSL or SASL_PLAINTEXT."""

    names: Sequence[str] = ()
    """The server's names beside those of this machine."""

    users: Sequence[str] = ("admin",)
    mechanism: str = "PLAIN"
    """By which clients log in."""

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL")


def make_development_files(
    folder: Path, security: DevelopmentSecurity, now: datetime.datetime, *, replaces: bool = False
) -> Mapping[str, str]:
    """Writes the files; returns the password of each user, which is made here. Certificates are good until `end_of`.

    Raises FilesExistError if one of the files exists, unless `replaces`; UsageError for an invalid name; AccessError if
    the files can't be written.
    """
    folder = folder.resolve()
    passwords = {user: secrets.token_urlsafe(24) for user in map(_checked, security.users) if security.has_sasl}
    files = _certificates(security, _validity(now)) if security.has_tls else {}
    files |= _settings(folder, security, passwords)
    there = [name for name in files if (folder / name).exists()]
    if there and not replaces:
        raise FilesExistError(
            f"{folder} has {', '.join(there[:3])}{' and more' if len(there) > 3 else ''} already",
            hint="--force makes all of them again, with a new CA; or choose another --out",
        )
    with accessing(folder, "make"):
        folder.mkdir(parents=True, exist_ok=True)
    for name, file in files.items():
        write_whole(folder / name, file.content, mode=file.mode)
    return passwords


def end_of(now: datetime.datetime) -> datetime.datetime:
    """Returns when certificates expire that are made now."""
    return _validity(now).end


def _validity(now: datetime.datetime) -> Validity:
    return Validity.of_days(now, *_DAYS)


def _checked(user: str) -> str:
    if not _USER.fullmatch(user):
        raise UsageError(
            f"--user {user}: expected letters, digits, and . _ - after them",
            hint="plog user create makes users with other names, for SCRAM",
        )
    return user


def _certificates(security: DevelopmentSecurity, validity: Validity) -> dict[str, _File]:
    ca = make_ca("plog dev CA", validity)
    names = tuple(dict.fromkeys((*OWN_NAMES, *security.names)))
    try:
        server = sign(ca, "server", validity, names=names, organisation=["plog dev"])
    except ValueError as error:
        raise UsageError(f"--name {', '.join(names[len(OWN_NAMES) :])}: {error}") from error
    files = {"ca.pem": _File(ca.pem.encode(), _PUBLIC), "ca.key": _File(ca.key_pem().encode(), _PRIVATE)}
    files |= _files_of("server", server)
    if security.has_sasl:
        return files
    return files | _files_of("client", sign(ca, "client", validity, organisation=["plog dev"]))


def _files_of(name: str, one: Certificate) -> dict[str, _File]:
    return {
        f"{name}.pem": _File(one.pem.encode(), _PUBLIC),
        f"{name}.key": _File(one.key_pem().encode(), _PRIVATE),
        f"{name}.p12": _File(one.pkcs12(STORE_PASSWORD), _PRIVATE),
    }


# --- settings


def _settings(folder: Path, security: DevelopmentSecurity, passwords: Mapping[str, str]) -> dict[str, _File]:
    """Writes settings with absolute paths, so that the files work from every folder."""
    protocol = security.protocol
    client = {"bootstrap.servers": f"localhost:{SERVER_PORT}", "security.protocol": protocol}
    kcat = {**client, "security.protocol": protocol.lower()}
    server = {
        "listeners": f"{protocol}://localhost:{SERVER_PORT},CONTROLLER://localhost:{SERVER_PORT + 1}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": protocol,
    }
    if security.has_tls:
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(folder / "ca.pem")}
        client |= trust
        kcat["ssl.ca.location"] = str(folder / "ca.pem")
        server |= {**trust, **_key_store(folder / "server.p12")}
    if security.has_sasl:
        first = next(iter(passwords))
        logins = {user: client | _login(security.mechanism, user, password) for user, password in passwords.items()}
        kcat |= {"sasl.mechanisms": security.mechanism, "sasl.username": first, "sasl.password": passwords[first]}
        server |= _server_logins(protocol, passwords)
    else:
        logins = {"client": client | _key_store(folder / "client.p12")}
        kcat["ssl.certificate.location"] = str(folder / "client.pem")
        kcat["ssl.key.location"] = str(folder / "client.key")
        server["ssl.client.auth"] = "requested"
    files = {
        "client.properties" if number == 0 else f"client-{user}.properties": _File(java_properties(one), _PRIVATE)
        for number, (user, one) in enumerate(logins.items())
    }
    files["kcat.conf"] = _File(
        _text("For kcat (-F) and other clients on librdkafka; plog takes it, too.", kcat),
        _PRIVATE if security.has_sasl else _PUBLIC,
    )
    comment = (
        "For plog serve (--config), and for an Apache Kafka broker: after the lines of its own server.properties.\n"
        "# CONTROLLER is Kafka's alone; plog opens no listener for it."
    )
    if not security.has_sasl:
        comment += "\n# A client without a certificate is let in; ssl.client.auth=required wants one of each."
    files["server.properties"] = _File(_text(comment, _escaped_values(server)), _PRIVATE)
    return files


def _login(mechanism: str, user: str, password: str) -> dict[str, str]:
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{LOGIN_MODULES[mechanism]} required username="{user}" password="{password}";',
    }


def _server_logins(protocol: str, passwords: Mapping[str, str]) -> dict[str, str]:
    """Lets in these users by PLAIN, and those that are made in the broker by SCRAM; the first user is the broker's own,
    with which brokers log in at each other.
    """
    name, password = next(iter(passwords.items()))
    own = f'username="{name}" password="{password}"'
    users = "".join(f' user_{user}="{one}"' for user, one in passwords.items())
    prefix = f"listener.name.{protocol.lower()}."
    scram = {
        f"{prefix}{mechanism.lower()}.sasl.jaas.config": f"{LOGIN_MODULES[mechanism]} required;"
        for mechanism in SCRAM_MECHANISMS
    }
    return {
        "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM_MECHANISMS)),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{prefix}plain.sasl.jaas.config": f"{LOGIN_MODULES['PLAIN']} required {own}{users};",
        **scram,
    }


def _key_store(path: Path) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(path),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
    }


def _text(comment: str, settings: Mapping[str, str]) -> bytes:
    lines = [f"# {comment}", *(f"{name}={value}" for name, value in settings.items())]
    return "".join(f"{line}\n" for line in lines).encode()


def java_properties(settings: Mapping[str, str]) -> bytes:
    """Returns the content of a file with a client's settings, by Kafka's names."""
    return _text(
        "For plog (--command-config), Kafka's tools (--command-config and the like) and Java clients, Spark.",
        _escaped_values(settings),
    )


def _escaped_values(settings: Mapping[str, str]) -> dict[str, str]:
    """Escapes them as Java reads its files of properties: Latin-1 with escapes."""
    return {name: "".join(map(_escaped_character, value)) for name, value in settings.items()}


def _escaped_character(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[n : n + 4]}" for n in range(0, len(units), 4))
