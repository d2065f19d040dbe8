"""`plog config list | describe | diff | alter`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cli.data_location import Place, ReadPlace, WritePlace
from cli.options import parse_settings
from cli.output import OUTPUT, OutputFormat, Row, write_rows
from cli.plog_command import command, new_app
from cli.security_options import read_client_settings
from cli.terminal import say
from core.common.command_option import argument, flag, option, options
from core.common.config_def import ConfigResourceType, ConfigSource
from core.common.errors import KafkaError, UsageError

if TYPE_CHECKING:
    from core.pipeline.session import Session
    from core.protocol.schema.configs import DescribedConfig

app = new_app(
    "List, describe, compare and alter the settings of topics, brokers, groups, client metrics and loggers.",
    "plog config describe topic flights",
)


class ResourceKind(StrEnum):
    topic = "topic"
    broker = "broker"
    broker_logger = "broker-logger"
    client_metrics = "client-metrics"
    group = "group"


_KINDS = "|".join(ResourceKind)
KIND = argument(_KINDS, metavar="TYPE")
NAME = argument(
    "The name of the resource. `broker` without a name: the defaults of all brokers.",
    default="",
    metavar="[NAME]",
    show_default=False,
)


@command(app, "plog config list group", name="list")
def list_(
    kind: ResourceKind | None = argument(_KINDS, default=None, metavar="[TYPE]", show_default=False),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """List what has settings: every topic and broker, and the groups and client metrics with settings of their own."""
    from core.client.admin.admin import Admin

    with place.session().open_client(is_read_only=True, rests_on=lambda _: False) as client:
        found = Admin(client).list_config_resources([_type_of(kind)] if kind else [])
    rows: list[Row] = [{"type": type_.name.lower().replace("_", "-"), "name": name} for type_, name in found]
    write_rows(rows, ["type", "name"], output)


@command(app, "plog config describe topic flights --all")
def describe(
    kind: ResourceKind = KIND,
    name: str = NAME,
    show_all: bool = flag("Show defaults too, not only settings that were set.", "--all"),
    keys: list[str] | None = options("Show only this setting.", "--key", metavar="KEY"),
    docs: bool = flag("Show what each setting means."),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Show the settings of a topic, broker or group, and where each value comes from."""
    from core.client.admin.admin import Admin

    with place.session().open_client(is_read_only=True, rests_on=lambda _: False) as client:
        configs = Admin(client).describe_configs(_type_of(kind), name, with_docs=docs)
    absent = set(keys or ()) - {config.name for config in configs}
    if absent:
        raise UsageError(
            f"{_title(kind, name)} has no setting {', '.join(sorted(absent))}", hint="--all shows them all"
        )
    wanted = [
        config
        for config in configs
        if (config.name in keys if keys else show_all or config.config_source != ConfigSource.DEFAULT_CONFIG)
    ]
    if not wanted:
        say(f"{_title(kind, name)} has its defaults; --all shows them")
    columns = ["key", "value", "source", *(["doc"] if docs else [])]
    write_rows([_row(config) for config in wanted], columns, output, drops=["source"])


def _row(config: DescribedConfig) -> Row:
    known = config.config_source in list(ConfigSource)
    return {
        "key": config.name,
        "value": "(hidden)" if config.is_sensitive else config.value,
        "source": ConfigSource(config.config_source).name.lower() if known else str(config.config_source),
        "doc": config.documentation,
    }


@command(app, "plog config diff topic flights flights-copy", "plog config diff topic flights --with stage:9092")
def diff(
    kind: ResourceKind = KIND,
    first: str = argument(
        "The name of a resource. Without names, --with compares all topics.", default="", metavar="[A]"
    ),
    second: str = argument("The resource to compare it with; with --with, by default A.", default="", metavar="[B]"),
    other: str | None = option(
        "The other cluster, in which B is, or a data directory.", "--with", metavar="HOST:PORT|DIR"
    ),
    other_config: Path | None = option(
        "How to reach the other cluster; without it, as the first (help security).", "--with-config", metavar="FILE"
    ),
    show_all: bool = flag(
        "Show also what differs between any two brokers, and defaults that one side alone has.", "--all"
    ),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Compare the effective settings of two topics, brokers or groups, also of two clusters.

    Equal settings are not shown. The exit code is 1 if there is a difference.
    """
    from core.view.figures.config_diff import diff_configs

    session = place.session()
    away = None if other is None and other_config is None else _other(session, other, other_config)
    if away is None and not (first and second):
        raise UsageError("expected two names, or --with and the other cluster", hint="plog config diff topic A B")
    if not first and kind not in (ResourceKind.topic, ResourceKind.broker):
        raise UsageError(f"expected the name of a {kind}: only topics and the defaults of brokers go without")
    here = _read_configs(session, kind, first)
    there = _read_configs(away or session, kind, second or first)
    if first:
        pairs = {first if first == (second or first) else f"{first}, {second}": (first, second or first)}
    else:
        pairs = {name: (name, name) for name in sorted(here.keys() | there.keys())}
    rows: list[Row] = []
    secrets, expected = 0, 0
    for title, (one, two) in pairs.items():
        if one not in here or two not in there:
            states = {
                side: "there" if name in of else "missing" for side, name, of in (("a", one, here), ("b", two, there))
            }
            rows.append({"name": title, "key": None, **states})
            continue
        found = diff_configs(here[one], there[two], with_expected=show_all)
        secrets += len(found.secrets)
        expected += len(found.expected)
        for key, *sides in found.differences:
            values = {side: value and _row(value) for side, value in zip("ab", sides, strict=True)}
            rows.append(
                {"name": title, "key": key}
                | {side: row and row["value"] for side, row in values.items()}
                | {f"{side}_source": row and row["source"] for side, row in values.items()}
            )
    columns = ["name", "key", "a", "b", "a_source", "b_source"]
    write_rows(rows, columns, output, drops=["a_source", "b_source", "name"])
    if secrets:
        say(f"note: {secrets} secret settings are not compared: brokers do not tell them")
    if expected:
        say(f"note: {expected} differences are expected: --all shows them")
    if rows:
        raise typer.Exit(1)
    say(f"no setting of {len(pairs)} {kind}{'s' * (len(pairs) != 1)} differs")


def _other(session: Session, other: str | None, config: Path | None) -> Session:
    """Returns the session of the second cluster. Raises UsageError if nothing names a server."""
    if other is not None and (Path(other).is_dir() or "/" in other):
        if config is not None:
            raise UsageError(f"--with-config is about a server, and --with {other} is a directory")
        return replace(session, directory=Path(other), is_default=False, find_named_server=lambda: None)
    settings = read_client_settings(config) if config is not None else None
    server = other or (None if settings is None else settings.bootstrap_servers)
    if server is None:
        raise UsageError(f"{config} names no bootstrap.servers", hint="--with HOST:PORT")
    return replace(
        session,
        find_named_server=lambda: server,
        find_settings=session.find_settings if settings is None else lambda: settings,
    )


def _read_configs(session: Session, kind: ResourceKind, name: str) -> dict[str, list[DescribedConfig]]:
    """Returns the settings by name: of all topics, apart from Kafka's own, without a name."""
    from core.client.admin.admin import Admin

    with session.open_client(is_read_only=True, rests_on=lambda _: False) as client:
        names = [name]
        if kind is ResourceKind.topic and not name:
            names = [one for one in client.refresh() if not one.startswith("__")]
        found = {}
        for one in names:
            try:
                found[one] = Admin(client).describe_configs(_type_of(kind), one)
            except KafkaError as error:
                raise KafkaError(error.code, f"{_title(kind, one)} {client.place}: {error.message}") from error
        return found


@command(app, "plog config alter broker 1 --set log.retention.ms=86400000")
def alter(
    kind: ResourceKind = KIND,
    name: str = NAME,
    settings: list[str] | None = options("Set a setting.", "--set", metavar="KEY=VALUE"),
    unset: list[str] | None = options("Reset a setting to its default.", metavar="KEY"),
    append: list[str] | None = options("Add a value to a setting that is a list.", metavar="KEY=VALUE,.."),
    subtract: list[str] | None = options("Remove a value from a setting that is a list.", metavar="KEY=VALUE,.."),
    dry_run: bool = flag("Check whether the change would be accepted, and change nothing."),
    place: WritePlace = Place(),
) -> None:
    """Change settings while the broker runs. Either all changes are made, or none."""
    from cli.known_settings import alter_settings, resolve_passwords
    from core.client.admin.admin import Admin, AlterOperation
    from core.protocol.schema.configs import ChangedConfig

    values = parse_settings(settings or [])
    changes = [
        ChangedConfig(key, operation, value)
        for operation, given in (
            (AlterOperation.SET, resolve_passwords("--set", values) if kind is ResourceKind.broker else values),
            (AlterOperation.APPEND, parse_settings(append or [])),
            (AlterOperation.SUBTRACT, parse_settings(subtract or [])),
        )
        for key, value in given.items()
    ]
    changes += [ChangedConfig(key, AlterOperation.DELETE, None) for key in unset or []]
    if not changes:
        raise UsageError("nothing to change: give --set, --unset, --append or --subtract")
    session = place.session()
    with session.open_client() as client:
        admin = Admin(client)
        title = _title(kind, name)
        alter_settings(admin, _type_of(kind), name, changes, title=title, validate_only=dry_run)
        if kind is ResourceKind.broker_logger and session.zookeeper is None and session.find_server() is None:
            raise UsageError(
                f"no broker runs on {session.directory}, and its loggers keep their levels while it runs",
                hint="--bootstrap-server HOST:PORT; plog serve --log-requests starts with its request log on",
            )
        if kind is ResourceKind.broker:
            _warn_of_unknown(admin.describe_configs(_type_of(kind), name), (c.name for c in changes if c.value))
    say(f"{'would alter' if dry_run else 'altered'} {title} {client.place}")


def _warn_of_unknown(configs: Iterable[DescribedConfig], keys: Iterable[str]) -> None:
    """Warns of keys that the broker does not know: it keeps them, because a plugin may know them. Passwords of single
    listeners look the same.
    """
    from core.broker.config.broker_settings import find_broker_key

    unknown = {one.name for one in configs if one.is_sensitive and one.read_only and not find_broker_key(one.name)}
    for key in keys:
        if key in unknown:
            say(f"warning: the broker does not know {key}; it is kept, and changes nothing")


def _type_of(kind: ResourceKind) -> ConfigResourceType:
    return ConfigResourceType[kind.name.upper()]


def _title(kind: ResourceKind, name: str) -> str:
    return f"{kind} {name}" if name else f"{kind} defaults"
