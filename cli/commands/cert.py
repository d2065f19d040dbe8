"""`plog cert dev | show`."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cli.output import OUTPUT, Listing, OutputFormat, Row
from cli.plog_command import command, new_app
from cli.security_options import PLACE_METAVAR, ask_password, find_routes, find_tls_settings, resolve_reference
from cli.terminal import fill, find_width, say
from core.common.command_option import argument, flag, option, options
from core.common.errors import AccessError, CorruptRecordError, UsageError
from core.common.printable import printable

if TYPE_CHECKING:
    from core.client.net.server_certificates import ServerCertificates
    from core.security.certificates import CertificateDescription
    from core.security.secret import Secret

app = new_app("Make certificates for tests, and show those of a file or a server.", "plog cert dev --out certs")

WARNING_DAYS = 30
_WIDTH = 80


class Protocol(StrEnum):
    """The protocols of Kafka's listeners that have any security."""

    ssl = "ssl"
    sasl_ssl = "sasl_ssl"
    sasl_plaintext = "sasl_plaintext"


@command(
    app, "plog cert dev --out certs --name kafka.test", "plog cert dev --out secured --protocol sasl_ssl --user alice"
)
def dev(
    out: Path = option("The folder for the files.", default=Path("certs"), metavar="DIR"),
    protocol: Protocol = option(
        "What clients speak: TLS, TLS and a password, or a password alone.", default=Protocol.ssl, case_sensitive=False
    ),
    names: list[str] | None = options("A name or address of the server.", "--name", metavar="HOST"),
    users: list[str] | None = option(
        "With SASL, a user that gets a password; may be repeated. Default: admin.", "--user", metavar="NAME"
    ),
    force: bool = flag("Replace existing files, with a new CA."),
) -> None:
    """Make certificates or users, and settings with which plog serves and clients connect.

    With TLS it makes a CA, and a certificate for a server, for localhost, 127.0.0.1, ::1 and the names of --name, good
    for a year. Clients have a certificate too (ssl), or users with passwords (sasl_ssl, sasl_plaintext). All of it is
    for tests, not for production.
    """
    if users and protocol is Protocol.ssl:
        raise UsageError("--user makes a user of SASL, and --protocol is ssl", hint="--protocol sasl_ssl has users")
    if names and protocol is Protocol.sasl_plaintext:
        raise UsageError("--name is for the server's certificate, and sasl_plaintext has none")
    _ensure_cryptography()
    from core.client.net.development_certificates import (
        STORE_PASSWORD,
        DevelopmentSecurity,
        end_of,
        make_development_files,
    )

    security = DevelopmentSecurity(protocol.upper(), names or (), list(dict.fromkeys(users or ["admin"])))
    now = datetime.datetime.now(datetime.UTC)
    passwords = make_development_files(out, security, now, replaces=force)
    if security.has_tls:
        say(f"made certificates in {out}, good until {end_of(now):%Y-%m-%d}:")
    else:
        say(f"made settings in {out}:")
    say(f"  {out / 'server.properties'}: plog serve --config, and an Apache Kafka broker, after its own settings")
    say(f"  {out / 'client.properties'}: plog and Kafka's tools (--command-config), Java clients, Spark")
    for user in list(passwords)[1:]:
        say(f"  {out / f'client-{user}.properties'}: the same for {user}")
    say(f"  {out / 'kcat.conf'}: kcat (-F) and other clients on librdkafka")
    if security.has_tls:
        keys = "ca, server" if security.has_sasl else "ca, server, client"
        say(f"  {keys}: .pem and .key; .p12 is both, with the password {STORE_PASSWORD}")
    else:
        say("warning: without TLS, passwords and records go over the network in clear")


@command(app, "plog cert show certs/server.pem")
def show(
    place: str = argument("A PEM, DER, PKCS12 or JKS file, or a server.", metavar=PLACE_METAVAR),
    password: str | None = option(
        "The password of a PKCS12 file, as ${env:NAME} or ${file:PATH:KEY}. Without it, plog asks you.",
        metavar="REFERENCE",
    ),
    output: OutputFormat = OUTPUT,
) -> None:
    """Show certificates: the subject, the issuer, the host names, and the days that are left.

    For a server it also says whether a client with these settings (--command-config, -X; without them, what the system
    trusts) would trust it, and why not. The exit code is 1 if a certificate has expired or is not valid yet, or if the
    settings that you gave do not trust the server.
    """
    _ensure_cryptography()
    from core.files.tls_context import read_certificates

    path = Path(place).expanduser()
    server = None
    if path.exists():
        ders = read_certificates(path, lambda: _find_password(path, password))
    else:
        server = _ask(place)
        ders = server.chain
    rows, code = _look(ders, place, server)
    if output is OutputFormat.table:
        _print_table(rows)
    else:
        _LISTING.write(rows, output)
    _say_trust(place, server)
    is_refused = server is not None and server.refusal is not None and find_tls_settings() is not None
    raise typer.Exit(1 if code or is_refused else 0)


def _ensure_cryptography() -> None:
    try:
        import cryptography  # noqa: F401 - whether it is there
    except ImportError as error:
        raise UsageError(
            f"certificates need more packages: {error.name or 'cryptography'}",
            hint="pip install 'plog-kafka[security]'",
        ) from error


def _find_password(path: Path, reference: str | None) -> Secret | None:
    """Returns the password: that of --password, else that of the same file in the settings, else the user's input."""
    from core.security.secret import Secret

    if reference is not None:
        return Secret(resolve_reference("--password", reference))
    tls = find_tls_settings()
    for store in (tls.key_store, tls.trust) if tls is not None else ():
        if store is not None and store.password and store.location and Path(store.location).resolve() == path.resolve():
            return store.password
    typed = ask_password(str(path))
    return Secret(typed) if typed else None


def _ask(place: str) -> ServerCertificates:
    from core.client.net.server_certificates import ask_server
    from core.common.endpoint import parse_endpoint
    from core.security.client_security import Tls

    try:
        endpoint = parse_endpoint(place, default_port=-1)
    except UsageError:
        endpoint = None
    if endpoint is None or endpoint.port < 0:
        raise AccessError(f"could not read {place}: no such file", hint="a server is HOST:PORT", where=place)
    address = endpoint.host or "127.0.0.1", endpoint.port
    routes = find_routes([address])
    if routes is not None:
        routes.note_advertised([address])
    return ask_server(*address, find_tls_settings() or Tls(), None if routes is None else routes.find(address))


_LISTING = Listing(
    "number subject issuer names not_before not_after days_left state is_ca key signature serial sha256 trusted why_not"
)


def _look(ders: Sequence[bytes], place: str, server: ServerCertificates | None) -> tuple[list[Row], int]:
    """Returns a row for each certificate, and 1 if one of them is not valid today."""
    from core.security.certificates import CertificateError, describe_certificate

    now = datetime.datetime.now(datetime.UTC)
    rows: list[Row] = []
    code = 0
    for number, der in enumerate(ders, 1):
        try:
            found = describe_certificate(der)
        except CertificateError as error:
            raise CorruptRecordError(f"certificate {number} of {place} does not decode: {error}") from error
        state = _state(found, now)
        code |= state in ("expired", "not yet good")
        row = {
            **asdict(found),
            "number": number,
            "names": list(found.names),
            "not_before": f"{found.start:%Y-%m-%dT%H:%M:%SZ}",
            "not_after": f"{found.end:%Y-%m-%dT%H:%M:%SZ}",
            "days_left": found.days_left(now),
            "state": state,
        }
        if server is not None and number == 1:  # a client checks this one, by the others
            row["trusted"] = server.refusal is None
            row["why_not"] = None if server.refusal is None else server.refusal.message
        rows.append(row)
    return rows, code


def _state(found: CertificateDescription, now: datetime.datetime) -> str:
    if now > found.end:
        return "expired"
    if now < found.start:
        return "not yet good"
    return "expires soon" if found.days_left(now) < WARNING_DAYS else "good"


def _print_table(rows: Sequence[Row]) -> None:
    """Prints a block for each: a row with every column would be 300 characters wide."""
    for row in rows:
        kind = "CA" if row["is_ca"] else "no CA"
        print(f"certificate {row['number']} of {len(rows)} ({kind})")
        days = row["days_left"]
        left = f"{-days} days ago" if row["state"] == "expired" else f"{days} days left"
        for name, text in (
            ("subject", row["subject"]),
            ("issuer", "itself" if row["issuer"] == row["subject"] else row["issuer"]),
            ("names", ", ".join(row["names"]) or "none"),
            ("valid", f"{row['not_before'][:10]} to {row['not_after'][:10]}, {left}: {row['state']}"),
            ("key", f"{row['key']}, signed with {row['signature']}"),
            ("sha256", row["sha256"]),
        ):
            _print_wrapped(name, text)
        if row["state"] != "good":
            say(f"warning: certificate {row['number']}, {printable(row['subject'], keeps='')}: {row['state']}, {left}")


def _print_wrapped(name: str, text: str) -> None:
    words = printable(text, keeps="").split(" ")
    width = find_width(sys.stdout) or _WIDTH
    for line in fill(words, " ", width, first=f"  {name:<9}", indent=" " * 11):
        print(line)


def _say_trust(place: str, server: ServerCertificates | None) -> None:
    if server is None:
        return
    tls = find_tls_settings()
    whom = "what this system trusts"
    if tls is not None:
        whom = "the settings given" + (", which name no CA of their own" if tls.trust is None else "")
    if server.refusal is None:
        say(f"{place} is trusted by {whom}, and speaks {server.tls_version}")
        return
    say(f"not trusted by {whom}: {printable(server.refusal.message, keeps='')}")
    if server.refusal.hint:
        say(f"hint: {server.refusal.hint}")
