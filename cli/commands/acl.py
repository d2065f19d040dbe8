"""`plog acl list | add | remove | export | import | explain`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from cli.data_location import Place, ReadPlace, WritePlace, typed_place
from cli.options import DRY_RUN, YES, ensure_meant
from cli.output import OUTPUT, OutputFormat, Row, write_rows
from cli.plog_command import command, new_app
from cli.terminal import say
from core.client.admin.security_admin import (
    AuthorizerSettings,
    SecurityAdmin,
    ask_authorizer_settings,
    read_stored_security,
)
from core.common.command_option import REQUIRED, argument, flag, option
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, UsageError
from core.common.filesystem import access_error
from core.security.acl import ANY_HOST, Acl, PatternType, parse_address
from core.security.acl_request import AclRequest, ensure_has_operation
from core.security.acl_text import COLUMNS, acl_row, in_order, parse_operation, read_acls, write_acls
from core.security.principal import Principal

app = new_app(
    "Access control lists (ACLs): who may do what. See, change, copy and explain them.",
    "plog acl list --topic flights",
)

AddRequest = Annotated[AclRequest, ("principals",)]
_WITHOUT_RESOURCES = (
    "principals", "allow_principals", "deny_principals", "allow_hosts", "deny_hosts", "operations", "producer",
    "consumer", "idempotent", "pattern",
)  # fmt: skip
ResourceRequest = Annotated[AclRequest, _WITHOUT_RESOURCES]


@command(app, "plog acl list --topic flights --resource-pattern-type match", name="list")
def list_(request: AclRequest, output: OutputFormat = OUTPUT, place: ReadPlace = Place()) -> None:
    """List the ACLs: all of them, or those that the options name.

    A name finds the ACLs of exactly that name; a note says if others apply to it, by a prefix or by *.
    """
    filters = request.filters()
    acls, where = _read(place)
    found = in_order(acl for acl in acls if any(one.matches(acl) for one in filters))
    write_rows([acl_row(acl) for acl in found], COLUMNS, output)
    if not found:
        say(f"no {'such ' * bool(acls)}ACL {where}")
    _say_others(request, acls, found)


def _say_others(request: AclRequest, acls: Sequence[Acl], found: Sequence[Acl]) -> None:
    """Names the ACLs that are left out because nobody asked for prefixes: they apply to the named resources, too."""
    if request.pattern is not None or not request.has_resource:
        return
    wider = request.filters(PatternType.MATCH)
    count = len({acl for acl in acls if any(one.matches(acl) for one in wider)} - set(found))
    if count:
        say(f"note: {_count(count)} more by a prefix or by *: --resource-pattern-type match shows them")


@command(app, "plog acl add --allow-principal User:alice --consumer --topic flights --group etl")
def add(
    request: AddRequest,
    dry_run: bool = DRY_RUN,
    output: OutputFormat = OUTPUT,
    place: WritePlace = Place(),
) -> None:
    """Add ACLs: each principal, from each host, may do each operation on each resource.

    Without --operation it is All, without a host it is *. A denial counts more than all that is allowed.
    """
    wanted = request.acls()
    if not wanted:
        raise UsageError("no principal is named", hint="--allow-principal User:alice, or --deny-principal")
    for warning in request.warnings():
        say(f"warning: {warning}")
    _change(place, lambda there: Plan(wanted, [], there), output, dry_run=dry_run, makes_directory=True)


@command(app, "plog acl remove --allow-principal User:alice --topic flights --dry-run")
def remove(
    request: AclRequest,
    dry_run: bool = DRY_RUN,
    yes: bool = YES,
    output: OutputFormat = OUTPUT,
    place: WritePlace = Place(),
) -> None:
    """Remove the ACLs that the options name, after showing them.

    What is not named may be anything: without --operation, the ACLs of all operations are removed. A name finds the
    ACLs of exactly that name; * is the ACL for all names, and no pattern.
    """
    filters = request.filters()
    if request.is_of_all:
        raise UsageError(
            "nothing says which ACLs to remove", hint="for example --principal User:alice, or --topic flights"
        )
    left: list[Acl] = []

    def plan(there: list[Acl]) -> Plan:
        gone = [acl for acl in there if any(one.matches(acl) for one in filters)]
        left.extend(set(there) - set(gone))
        return Plan([], gone, there)

    _change(place, plan, output, dry_run=dry_run, yes=yes)
    _say_others(request, left, [])


@command(app, "plog acl export > acls.ndjson")
def export(place: ReadPlace = Place()) -> None:
    """Print all ACLs as lines of JSON, in one order, for plog acl import and for a diff."""
    acls, where = _read(place)
    for line in write_acls(acls):
        print(line)
    sys.stdout.flush()
    say(f"{_count(len(acls))} {where}")
    strange = sum(not acl.is_known for acl in acls)
    if strange:
        say(f"warning: {_count(strange)} of a later Kafka, with values that are UNKNOWN here: import refuses them")


@command(app, "plog acl import acls.ndjson --dry-run", name="import")
def import_(
    file: Path = argument("A file of plog acl export, or of kafka-acls --list; - is stdin.", metavar="FILE|-"),
    remove_others: bool = flag("Remove all ACLs that are not in the file, after showing them.", "--remove-others"),
    dry_run: bool = DRY_RUN,
    yes: bool = YES,
    output: OutputFormat = OUTPUT,
    place: WritePlace = Place(),
) -> None:
    """Add the ACLs of a file that are not there yet.

    The file has lines of plog acl export, or what kafka-acls --list prints.
    """
    try:
        text = (sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()).decode("utf-8-sig")
    except OSError as error:
        raise access_error(error, file, "read") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is no UTF-8: {error.reason} at byte {error.start}") from error
    wanted = read_acls(text, str(file))
    if remove_others and not text.strip():
        raise UsageError(
            f"{file} is empty: --remove-others would remove all ACLs", hint="a line with # alone says that it is meant"
        )

    def plan(there: list[Acl]) -> Plan:
        return Plan(wanted, list(set(there) - set(wanted)) if remove_others else [], there)

    _change(place, plan, output, dry_run=dry_run, yes=yes, makes_directory=True)


class Plan(NamedTuple):
    """`wanted`: ACLs that shall be there; `gone`: those that shall not; `there`: those that are."""

    wanted: Sequence[Acl]
    gone: Sequence[Acl]
    there: Sequence[Acl]


def _change(
    place: Place,
    plan: Callable[[list[Acl]], Plan],
    output: OutputFormat,
    *,
    dry_run: bool,
    yes: bool = False,
    makes_directory: bool = False,
) -> None:
    """Shows what `plan` finds to be done, and does exactly that; asks before it removes something. With
    `makes_directory` a data directory that does not exist is one without ACLs, which the change creates.
    """
    with ExitStack() as stack:
        if dry_run:
            there, where = _read(place, makes_directory=makes_directory)
        else:
            client = stack.enter_context(place.session().open_client(makes_directory=makes_directory))
            admin, where = SecurityAdmin(client), client.place
            there = admin.describe_acls()
        found = plan(there)
        new = in_order(set(found.wanted) - set(there))
        gone = in_order(acl for acl in found.gone if acl.is_known)
        if odd := len(set(found.gone)) - len(gone):
            say(f"warning: {_count(odd)} of a later Kafka, with values that plog does not know: left as they are")
        kept = in_order(set(found.wanted) & set(there))
        rows: list[Row] = [
            {"change": change, **acl_row(acl)}
            for change, acls in (("remove", gone), ("add", new), ("there already", kept))
            for acl in acls
        ]
        write_rows(rows, ["change", *COLUMNS], output)
        if gone and not dry_run and not yes:
            ensure_meant(f"{_count(len(gone))} {where} would be removed", f"remove {_count(len(gone))} {where}")
        if not dry_run:
            admin.create_acls(new)
            admin.delete_acls(gone)
            if admin.is_open:
                say("warning: the broker has no authorizer, and obeys ACLs only after a restart (plog help acl)")
    would = "would be " if dry_run else ""
    done = [f"{len(acls)} {would}{verb}" for acls, verb in ((gone, "removed"), (new, "added")) if acls]
    done += [f"{len(kept)} there already"] if kept else []
    say(f"ACLs {where}: {', '.join(done) or 'nothing to do'}")


def _count(acls: int) -> str:
    return f"{acls} ACL{'s' * (acls != 1)}"


def _read(place: Place, *, makes_directory: bool = False) -> tuple[list[Acl], str]:
    """Returns all ACLs and, for messages, where they are; of a directory that nobody serves from its metadata log. With
    `makes_directory`, one that does not exist has none.
    """
    session = place.session()
    if session.find_server() is None:
        acls, _ = read_stored_security(session.directory, may_be_missing=makes_directory)
        return acls, f"in {session.directory}"
    with session.open_client(is_read_only=True) as client:
        return SecurityAdmin(client).describe_acls(), client.place


@command(app, "plog acl explain --principal User:alice --operation Read --topic flights")
def explain(
    *,
    principal: str = option("The principal of the client, such as User:alice.", default=REQUIRED, metavar="TYPE:NAME"),
    operation: str = option("The operation, such as Read.", default=REQUIRED, metavar="NAME"),
    request: ResourceRequest,
    host: str = option("The IP address of the client.", default="*", metavar="IP"),
    config: Path | None = option(
        "The broker's server.properties, for super.users and what else a broker does not tell.", metavar="FILE"
    ),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Say whether a principal may do an operation, and which ACL or setting decides.

    It lists the ACLs that match, and those that nearly do: for another host or operation, or with the principal in
    another spelling. The exit code is 1 if the operation is denied.
    """
    from core.security.acl_explanation import DECIDES, Question, find_reasons, find_ways_out
    from core.security.acl_rules import AclRules, ZooKeeperAclRules

    if len(request.resources()) != 1:
        raise UsageError("expected one resource", hint="for example --topic flights, --group etl or --cluster")
    ((type_, name),) = request.resources()
    if not name:
        raise UsageError(f"an empty name of a {type_.name}", hint="is a variable unset?")
    if host != ANY_HOST and parse_address(host) is None:
        raise UsageError(f"host {host!r} is no IP address", hint="the address of the client, or * for any")
    question = Question(Principal.parse(principal), host, parse_operation(operation), type_, name)
    ensure_has_operation(type_, question.operation)
    acls, where, settings = _read_all(place, config)
    if acls is None:
        say(f"allowed: no authorizer is at work {where}, so everybody may do everything")
        return
    rules = ZooKeeperAclRules if (settings.class_name or "").endswith("AclAuthorizer") else AclRules
    decision = rules(
        acls,
        super_users=settings.super_users or (),
        allows_everyone_if_none=bool(settings.allows_everyone_if_none),
    ).decide(*question)
    reasons = find_reasons(question, decision, in_order(acls), rules)
    rows: list[Row] = [{"why": reason.why, **acl_row(reason.acl)} for reason in reasons]
    if decision.acl is None:
        rows.insert(0, {"why": f"{DECIDES}: {decision.rule_text}"})
    write_rows(rows, ["why", *COLUMNS], output)
    client = f"{principal} from {'any host' if host == ANY_HOST else host}"
    what = f"{question.operation.name} on {type_.name.lower()} {name} to {client} {where}"
    why = _RULES.get(decision.rule_text, "an ACL decides")
    say(f"{'allowed' if decision.is_allowed else 'denied'}: {what}: {why}")
    if settings.class_name == "":
        say("note: authorizer.class.name is not set: Kafka obeys no ACL then, and plog those that its start found")
    elif settings.class_name and not settings.class_name.endswith(("StandardAuthorizer", "AclAuthorizer")):
        say(f"note: these are the rules of Kafka's authorizers; {settings.class_name} may have others")
    if decision.is_allowed:
        return
    if settings.unknown():
        say(f"note: not known, and it may allow it: {', '.join(settings.unknown())} (--config server.properties)")
    for line in find_ways_out(question, decision, reasons):
        say(f"hint: {line}{typed_place()}")
    raise typer.Exit(1)


_RULES = {
    "SuperUser": "super.users has the principal",
    "DefaultAllow": "no ACL is about it, and allow.everyone.if.no.acl.found is set",
    "DefaultDeny": "no ACL allows it",
}
"""Kafka's name of a rule -> why it decides, if no ACL does."""


def _read_all(place: Place, config: Path | None) -> tuple[list[Acl] | None, str, AuthorizerSettings]:
    """Returns the ACLs, None without an authorizer, where they are, and the settings of the authorizer: those of the
    broker, and of its server.properties if it is named.
    """
    from core.common.properties_file import read_properties

    settings = AuthorizerSettings() if config is None else AuthorizerSettings.parse(read_properties(config))
    session = place.session()
    if session.find_server() is None:
        acls, where = _read(place)
        return acls, where, settings
    with session.open_client(is_read_only=True) as client:
        settings = ask_authorizer_settings(client).or_else(settings)
        admin = SecurityAdmin(client)
        try:
            acls = admin.describe_acls()
            return None if admin.is_open else acls, client.place, settings
        except KafkaError as error:
            if error.code is not ErrorCode.SECURITY_DISABLED:
                raise
            return None, client.place, settings
