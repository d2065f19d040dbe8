"""Certificates to develop and test with: a CA, a server's and a client's, and settings that use them, in a folder.

ca.pem ca.key                    the CA: the certificate that others trust, and its key
server.pem server.key server.p12 a server's: certificate, key, both with the CA's certificate
client.pem client.key client.p12 a client's
client.properties                for plog, Kafka's tools and Java clients, Spark
kcat.conf                        for kcat and all that stands on librdkafka; plog takes it, too
server.properties                what an Apache Kafka broker needs
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.common.errors import PlogError, UsageError
from core.common.filesystem import access_error
from core.common.out_file import write_whole
from core.security.certificates import Certificate, Validity, make_ca, sign

STORE_PASSWORD = "changeit"  # noqa: S105 - Java's word for a key store whose file's mode is what protects it
SERVER_PORT = 9093
OWN_NAMES = ("localhost", "127.0.0.1", "::1")
_DAYS = (-1, 365)  # the clock of another machine may be behind
_PRIVATE, _PUBLIC = 0o600, 0o644


class FilesExistError(PlogError):
    """Files exist already: they are somebody's, and are replaced only on request."""


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    mode: int


def make_development_certificates(
    folder: Path, names: Sequence[str], now: datetime.datetime, *, replaces: bool = False
) -> datetime.datetime:
    """Writes the files; returns when the certificates expire. `names` are the server's beside those of this machine.

    Raises FilesExistError if one of the files exists, unless `replaces`; UsageError for an invalid name; AccessError if
    the files can't be written.
    """
    folder = folder.resolve()
    validity = Validity.of_days(now, *_DAYS)
    files = _files(folder, tuple(dict.fromkeys((*OWN_NAMES, *names))), validity)
    there = [name for name in files if (folder / name).exists()]
    if there and not replaces:
        raise FilesExistError(
            f"{folder} has {', '.join(there[:3])}{' and more' if len(there) > 3 else ''} already",
            hint="--force makes all of them again, with a new CA; or choose another --out",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise access_error(error, folder, "make") from error
    for name, file in files.items():
        write_whole(folder / name, file.content, mode=file.mode)
    return validity.end


def _files(folder: Path, names: tuple[str, ...], validity: Validity) -> dict[str, _File]:
    ca = make_ca("plog dev CA", validity)
    try:
        server = sign(ca, "server", validity, names=names, organisation=["plog dev"])
    except ValueError as error:
        raise UsageError(f"--name {', '.join(names[len(OWN_NAMES) :])}: {error}") from error
    client = sign(ca, "client", validity, organisation=["plog dev"])
    files = {"ca.pem": _File(ca.pem.encode(), _PUBLIC), "ca.key": _File(ca.key_pem().encode(), _PRIVATE)}
    return files | _files_of("server", server) | _files_of("client", client) | _settings(folder)


def _files_of(name: str, one: Certificate) -> dict[str, _File]:
    return {
        f"{name}.pem": _File(one.pem.encode(), _PUBLIC),
        f"{name}.key": _File(one.key_pem().encode(), _PRIVATE),
        f"{name}.p12": _File(one.pkcs12(STORE_PASSWORD), _PRIVATE),
    }


# --- settings


def _settings(folder: Path) -> dict[str, _File]:
    """Writes settings with absolute paths, so that the files work from every folder."""
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(folder / "ca.pem")}
    client = {
        "bootstrap.servers": f"localhost:{SERVER_PORT}",
        "security.protocol": "SSL",
        **trust,
        **_key_store(folder / "client.p12"),
    }
    kcat = {
        "bootstrap.servers": f"localhost:{SERVER_PORT}",
        "security.protocol": "ssl",
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.certificate.location": str(folder / "client.pem"),
        "ssl.key.location": str(folder / "client.key"),
    }
    server = {**trust, **_key_store(folder / "server.p12"), "ssl.client.auth": "requested"}
    return {
        "client.properties": _File(
            _text(
                "For plog (--command-config), Kafka's tools (--command-config and the like) and Java clients, Spark.",
                {name: _escaped(value) for name, value in client.items()},
            ),
            _PRIVATE,
        ),
        "kcat.conf": _File(_text("For kcat (-F) and other clients on librdkafka; plog takes it, too.", kcat), _PUBLIC),
        "server.properties": _File(
            _text(
                "For an Apache Kafka broker: into its own server.properties, with a listener SSL://. A client without\n"
                "# a certificate is let in; ssl.client.auth=required wants one of each.",
                {name: _escaped(value) for name, value in server.items()},
            ),
            _PRIVATE,
        ),
    }


def _key_store(path: Path) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(path),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
    }


def _text(comment: str, settings: dict[str, str]) -> bytes:
    lines = [f"# {comment}", *(f"{name}={value}" for name, value in settings.items())]
    return "".join(f"{line}\n" for line in lines).encode()


def _escaped(value: str) -> str:
    """Escapes it as Java reads its files of properties: Latin-1 with escapes."""
    return "".join(map(_escaped_character, value))


def _escaped_character(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[n : n + 4]}" for n in range(0, len(units), 4))
