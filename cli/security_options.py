"""`--command-config FILE` and `-X KEY=VALUE`: how a secured cluster is reached, for every command that talks to one;
`--resolve PAIRS`: where the addresses that it advertises can be reached from here.

They are added to each command that has `--bootstrap-server`, here and nowhere else; their values are kept for the
running command line, and read when the first client is made (`core/pipeline/session.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.core import TyperOption

from cli.terminal import say
from core.common.errors import UsageError

if TYPE_CHECKING:
    from core.client.net.address_map import AddressMap
    from core.security.client_security import Tls
    from core.security.client_settings import ClientSettings

PLACE_METAVAR = "FILE|HOST:PORT"
"""The metavar of an argument that may be a server, which `--bootstrap-server` does not name."""

_CONFIG_HELP = "How to reach the cluster: client.properties, kcat.conf or an rpk profile (help security)."
_PROPERTY_HELP = (
    "One client setting; it overrides the file. Don't write a secret here: ${env:NAME} takes one from the environment."
)
_RESOLVE_HELP = (
    "Where advertised addresses can be reached from here (port-forwards, NAT): ADVERTISED=HOST:PORT,.., or bootstrap."
)
PLOG_RESOLVE = "PLOG_RESOLVE"


@dataclass(slots=True)
class _Given:
    """The options of a command line; `found` are the settings, `routes` what --resolve says, once they were read."""

    context: Any = None  # typer's Context
    command_config: str | None = None
    command_property: Sequence[str] = ()
    resolve: Sequence[str] = ()
    found: ClientSettings | None = None
    routes: AddressMap | None = None


_given: ContextVar[_Given] = ContextVar("plog_security")


def add_security_options(command: Any) -> None:
    """Adds them to a command, after its option for the server, if it has one."""
    places = [n for n, p in enumerate(command.params) if "--bootstrap-server" in p.opts or p.metavar == PLACE_METAVAR]
    if places:
        command.params[places[0] + 1 : places[0] + 1] = _make_options()


def _make_options() -> list[TyperOption]:
    make = partial(TyperOption, type=str, expose_value=False, callback=_keep)
    several = partial(make, multiple=True)
    names = ["-X", "--command-property"]
    return [
        make(param_decls=["--command-config"], metavar="FILE", help=_CONFIG_HELP),
        several(param_decls=names, metavar="KEY=VALUE", help=_PROPERTY_HELP),
        several(param_decls=["--resolve"], metavar="PAIRS", help=_RESOLVE_HELP, envvar=PLOG_RESOLVE, show_envvar=True),
    ]


def _keep(context: Any, parameter: Any, value: Any) -> None:
    """A callback of each of the options."""
    given = _given.get(_Given())
    given.context = context
    setattr(given, parameter.name, (value or ()) if parameter.multiple else value)
    _given.set(given)


def find_routes(bootstrap: list[tuple[str, int]]) -> AddressMap | None:
    """Returns what --resolve says for a cluster with these bootstrap servers, or None without it. Raises UsageError if
    it is wrong.
    """
    given = _given.get(_Given())
    if given.resolve and given.routes is None:
        from core.client.net.address_map import AddressMap

        given.routes = AddressMap.of(given.resolve, bootstrap)
        for place in given.routes.shared_places() if given.routes is not None else ():
            say(f"warning: --resolve leads from several addresses to {place}: right only if they are one broker's")
    return given.routes


def note_useless_routes(*, is_done: bool) -> None:
    """Names pairs of --resolve that nothing needed, and a typed --resolve of a command that `is_done` without it."""
    given = _given.get(_Given())
    text = given.routes.unused() if given.routes is not None else None
    if given.routes is None and is_done and any(given.resolve) and level_of(given.context, "resolve") == 0:
        text = "--resolve changes nothing here: no server was asked"
    if text is not None:
        say(f"note: {text}")


def find_client_settings() -> ClientSettings | None:
    """Returns the settings of the two options, or None. Raises UsageError if they are wrong; warnings go to stderr."""
    given = _given.get(_Given())
    if given.command_config is None and not given.command_property:
        return None
    if given.found is None:
        given.found = _read(given)
    return given.found


def read_client_settings(path: Path) -> ClientSettings:
    """Reads the settings of another cluster; raises UsageError if they are wrong."""
    return _read(_Given(_given.get(_Given()).context, str(path)))


def find_spark_access() -> str:
    """Returns the settings of the two options, or "", without secrets, for processes with connections of their own."""
    from core.spark.cluster_access import COMMAND_CONFIG, RESOLVE, access_of

    given = _given.get(_Given())
    options = {f"kafka.{name}": value for name, value in _properties(given.command_property).items()}
    if given.command_config is not None:
        options[COMMAND_CONFIG.lower()] = str(Path(given.command_config).expanduser().resolve())
    if given.resolve:
        options[RESOLVE] = ",".join(given.resolve)
    return access_of(options)


def find_named_server(bootstrap_server: str | None) -> str | None:
    """Returns the servers of --bootstrap-server, else the settings' bootstrap.servers, unless --data-dir was given as
    near to the command as they were (`cli/data_location.py`). With --zookeeper this is not called.
    """
    if bootstrap_server is not None:
        _ensure_no_other(bootstrap_server)
        return bootstrap_server
    settings = find_client_settings()
    if settings is None or settings.bootstrap_servers is None:
        return None
    context = _given.get().context
    level = min(level_of(context, name) for name in ("command_config", "command_property"))
    is_directory = context.params.get("data_dir") is not None and level_of(context, "data_dir") <= level
    return None if is_directory else settings.bootstrap_servers


def level_of(context: Any, name: str) -> int:
    """Returns how far from the command line (0) an option's value was given; nothing without a value."""
    source = context.get_parameter_source(name)
    if source is not None and source.name == "COMMANDLINE":
        return 0
    if source is not None and source.name == "ENVIRONMENT":
        return 1
    section = section_of(context, name)
    return 2 + 2 * (not section.startswith("profile.")) + section.endswith("default")


def section_of(context: Any, name: str) -> str:
    """Returns the section of config.toml, or "" if the value is not from there."""
    return next((str(getattr(one, "config_section", "")) for one in context.command.params if one.name == name), "")


def _ensure_no_other(bootstrap_server: str) -> None:
    """Raises UsageError if a typed setting names other servers than the typed option."""
    given = _given.get(None)
    if given is None:
        return
    for name in ("bootstrap.servers", "metadata.broker.list"):
        other = _properties(given.command_property).get(name, bootstrap_server)
        if other != bootstrap_server and level_of(given.context, "bootstrap_server") == 0:
            text = f"--bootstrap-server {bootstrap_server} and {name}={other}"
            raise UsageError(f"{text} are both set, and differ", hint="say one of them")


def find_tls_settings() -> Tls | None:
    """Returns the TLS settings of the two options, or None without them, even if the protocol has no TLS. Raises
    UsageError if they are wrong.
    """
    given = _given.get(_Given())
    if given.command_config is None and not given.command_property:
        return None
    from core.security.client_settings import parse_client_settings

    settings, _ = _read_settings(given)
    about_tls = {name: value for name, value in settings.items() if not name.startswith("sasl.")}
    return parse_client_settings(about_tls | {"security.protocol": "SSL"}).security.tls


def _read(given: _Given) -> ClientSettings:
    from core.security.client_settings import parse_client_settings

    settings, warnings = _read_settings(given)
    for warning in warnings:  # which may explain why the rest fails
        say(f"warning: {warning}")
    may_ask = not given.context.resilient_parsing  # a shell that completes can't answer
    found = parse_client_settings(settings, ask_password if may_ask else None)
    for warning in found.warnings:
        say(f"warning: {warning}")
    return found


def _read_settings(given: _Given) -> tuple[dict[str, str], list[str]]:
    """Reads the file's settings, and puts the single ones over them; returns warnings too."""
    from core.client.net.client_config_files import read_settings_file, reference_warnings, replace_references

    file = given.command_config
    settings, warnings = ({}, []) if file is None else read_settings_file(Path(file).expanduser())
    properties = _properties(given.command_property)
    warnings += reference_warnings(properties, "-X")
    return settings | replace_references(properties, "-X"), warnings


def _properties(given: Sequence[str]) -> dict[str, str]:
    from core.client.net.client_config_files import is_reference
    from core.security.client_settings import SECRET_SETTINGS

    properties = {}
    for one in given:
        name, separator, value = one.partition("=")
        name = name.strip()
        if not separator or not name:
            raise UsageError(f"-X {one}: expected KEY=VALUE")
        if name in SECRET_SETTINGS and not is_reference(value):
            raise UsageError(
                f"-X {name}: other users can see a secret on the command line, and the shell keeps it",
                hint=f"{name} in --command-config FILE, or -X '{name}=${{env:NAME}}'"
                + (", or leave it out to be asked" if name == "sasl.password" else ""),
            )
        properties[name] = value.strip()
    return properties


def resolve_reference(option: str, value: str) -> str:
    """Reads the secret that an option's value refers to. Raises UsageError if the value is the secret itself."""
    from core.client.net.client_config_files import is_reference, replace_references

    if not is_reference(value):
        raise UsageError(
            f"{option}: other users can see a secret on the command line, and the shell keeps it",
            hint=f"{option} '${{env:NAME}}' or '${{file:PATH:KEY}}', or leave it out to be asked",
        )
    return replace_references({option: value}, "the command line")[option]


def ask_password(name: str) -> str:
    """Asks for a password; returns "" without a terminal."""
    if not sys.stderr.isatty():
        return ""
    import getpass

    try:
        return getpass.getpass(f"password of {name}: ", sys.stderr) if _has_terminal() else ""
    except (EOFError, OSError):
        return ""


def _has_terminal() -> bool:
    """Returns whether the user can type an answer, even if stdin holds records."""
    try:
        with Path("/dev/tty").open("rb"):
            return True
    except OSError:
        return sys.stdin.isatty()
