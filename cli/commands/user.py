"""`plog user list | create | delete`."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path

from cli.data_location import Place, ReadPlace, WritePlace
from cli.options import DRY_RUN, YES, ensure_meant
from cli.output import OUTPUT, OutputFormat, write_rows
from cli.plog_command import command, new_app
from cli.security_options import ask_password
from cli.terminal import say
from core.client.admin.security_admin import ScramCredential, SecurityAdmin, read_stored_security
from core.common.command_option import argument, flag, option
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, UsageError
from core.common.filesystem import accessing

app = new_app("The users of SCRAM: list them, create them with a password, delete them.", "plog user list")

_LEAST_ITERATIONS, _MOST_ITERATIONS = 4096, 16384
"""The limits of Kafka's brokers."""
_ITERATIONS = 8192


class Mechanism(StrEnum):
    sha_256 = "SCRAM-SHA-256"
    sha_512 = "SCRAM-SHA-512"


MECHANISMS = option("Only for this mechanism; may be repeated. Without it, for both.", "--mechanism")


@command(app, "plog user list --output json", name="list")
def list_(
    names: list[str] | None = argument("Which users.", default=None, metavar="[NAME...]", show_default=False),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """List the users that have a password, with the SCRAM mechanisms and iterations of each."""
    wanted = names or []
    found, where = _find(place, wanted)
    write_rows([one._asdict() for one in found], ["user", "mechanism", "iterations"], output)
    _ensure_known(wanted, found, where)
    if not found:
        say(f"no user {where}")


def _find(place: Place, names: list[str], *, makes_directory: bool = False) -> tuple[list[ScramCredential], str]:
    """Returns the credentials of these users, or of all, and where they are; of a directory that nobody serves from its
    metadata log. With `makes_directory`, one that does not exist has none.
    """
    session = place.session()
    if session.find_server() is None:
        _, stored = read_stored_security(session.directory, may_be_missing=makes_directory)
        return [one for one in stored if not names or one.user in names], f"in {session.directory}"
    with session.open_client(is_read_only=True) as client:
        return SecurityAdmin(client).describe_users(names), client.place


def _ensure_known(wanted: list[str], found: list[ScramCredential], where: str) -> None:
    missing = [name for name in wanted if name not in {one.user for one in found}]
    if missing:
        raise KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND, f"no user {', '.join(missing)} has a password {where}", hint="plog user list"
        )


@command(app, "plog user create alice --password-stdin < alice.password")
def create(
    name: str = argument("The name, without User: in front.", metavar="NAME"),
    mechanisms: list[Mechanism] | None = MECHANISMS,
    iterations: int = option(
        "How often the password is hashed; more is slower to guess, and to log in.",
        default=_ITERATIONS,
        metavar="N",
        min=_LEAST_ITERATIONS,
        max=_MOST_ITERATIONS,
    ),
    password_stdin: bool = flag("Read the password from stdin, up to the end of the line."),
    password_file: Path | None = option("Read the password from the first line of a file.", metavar="FILE"),
    allow_plaintext: bool = flag(
        "Send the hashed password also over a network without TLS, where it can be read and used."
    ),
    dry_run: bool = DRY_RUN,
    yes: bool = YES,
    place: WritePlace = Place(),
) -> None:
    """Create a user with a password, or give the user another one.

    plog asks for the password twice, or reads it from stdin or a file; it is never an argument. It sends the
    salted password (KIP-554): the result of --iterations of the mechanism's hash, with a new salt.
    """
    _ensure_name(name)
    if password_stdin and password_file is not None:
        raise UsageError("--password-stdin and --password-file are two passwords", hint="say one of them")
    wanted = [ScramCredential(name, one.value, iterations) for one in dict.fromkeys(mechanisms or Mechanism)]
    text = ", ".join(one.mechanism for one in wanted)
    if dry_run:
        if password_stdin or password_file is not None:
            _read_password(name, password_file, from_stdin=password_stdin)
        found, where = _find(place, [name], makes_directory=True)
        is_there = any(one.mechanism in (two.mechanism for two in wanted) for one in found)
        say(f"would {'replace the password of' if is_there else 'create'} user {name} {where}: {text}")
        return
    password = _read_password(name, password_file, from_stdin=password_stdin)
    with place.session().open_client(makes_directory=True) as client:
        admin = SecurityAdmin(client)
        there = {one.mechanism for one in admin.describe_users([name])} & {one.mechanism for one in wanted}
        if there and not yes:
            ensure_meant(f"user {name} has a password {client.place}, which would be replaced", "replace it")
        for one in wanted:  # Kafka takes one change of a user in a request
            admin.set_password(one, password, allows_plaintext=allow_plaintext)
        say(f"{'replaced the password of' if there else 'created'} user {name} {client.place}: {text}")


def _ensure_name(name: str) -> None:
    """Raises UsageError for a name under which nobody could log in to a broker of Kafka's (ScramMessages)."""
    kind, colon, rest = name.partition(":")
    if colon and kind == "User":
        raise UsageError(f"{name} is the principal of a user", hint=f"did you mean {rest}?")
    if not name or not name.isascii() or "\0" in name:
        raise UsageError(
            f"the name {name!r} is empty or not ASCII: no client could log in with it",
            hint="Kafka's brokers take names of ASCII characters in SCRAM",
        )


def _read_password(name: str, file: Path | None, *, from_stdin: bool) -> str:
    """Returns the first line of the file or of stdin, or else a password that the person types twice. Raises UsageError
    if there is no password.
    """
    if file is not None:
        with accessing(file):
            return _first_line(file.read_bytes(), str(file))
    if from_stdin:
        return _first_line(sys.stdin.buffer.readline(), "stdin")
    password = ask_password(name)
    if not password:
        raise UsageError(
            "no password is given, and there is no terminal to ask for one", hint="--password-stdin, or --password-file"
        )
    if ask_password(f"{name}, again") != password:
        raise UsageError("the two passwords differ: nothing was changed")
    return password


def _first_line(data: bytes, where: str) -> str:
    line = data.partition(b"\n")[0].removesuffix(b"\r")
    try:
        password = line.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"the password in {where} is no UTF-8") from error
    if not password:
        raise UsageError(f"the password in {where} is empty")
    return password


@command(app, "plog user delete alice --dry-run")
def delete(
    names: list[str] = argument("Which users.", metavar="NAME..."),
    mechanisms: list[Mechanism] | None = MECHANISMS,
    dry_run: bool = DRY_RUN,
    yes: bool = YES,
    output: OutputFormat = OUTPUT,
    place: WritePlace = Place(),
) -> None:
    """Delete the passwords of users, after showing them: they can't log in any more.

    Clients that are logged in stay so until their connections end, and ACLs that name the user stay.
    """
    with ExitStack() as stack:
        if dry_run:
            there, where = _find(place, names)
        else:
            client = stack.enter_context(place.session().open_client())
            admin, where = SecurityAdmin(client), client.place
            there = admin.describe_users(names)
        found = [one for one in there if not mechanisms or one.mechanism in mechanisms]
        _ensure_known(names, found, where)
        write_rows([one._asdict() for one in found], ["user", "mechanism", "iterations"], output)
        if not (dry_run or yes):
            ensure_meant(f"{len(found)} passwords {where} would be deleted", f"delete {len(found)} passwords")
        for one in found if not dry_run else ():
            admin.delete_credential(one.user, one.mechanism)
    say(f"{'would delete' if dry_run else 'deleted'} {len(found)} passwords {where}")
