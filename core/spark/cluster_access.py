"""Reads the options that say how the driver and tasks reach a cluster: `kafka.*`, `commandConfig` and `resolve`.

Sources, sinks and replays have these options. `kafka.NAME` is the setting NAME of a client, as in Spark's own Kafka
source; `commandConfig` names a file of such settings, as `--command-config` does. Spark writes the values of options
into plans and may show them in its UI, so an option may not hold a secret: the secret is in the file, or is read by
`${env:NAME}` or `${file:PATH:KEY}`. Each process reads them where it runs; files and variables must be there, too.
`resolve` is `--resolve`: the driver and each executor must be able to reach the places that it names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from core.common.endpoint import parse_bootstrap
from core.common.errors import UsageError

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient
    from core.security.client_settings import ClientSettings

COMMAND_CONFIG = "commandConfig"
RESOLVE = "resolve"
_PREFIX = "kafka."
_SERVERS = "kafka.bootstrap.servers"


def access_of(options: Mapping[str, str]) -> str:
    """Returns the options for the connection as JSON without secrets, or "" for plaintext. Raises UsageError if an
    option holds a secret. Names of options are in lower case.
    """
    config = options.get(COMMAND_CONFIG.lower(), "")
    settings = {n.removeprefix(_PREFIX): v for n, v in options.items() if n.startswith(_PREFIX) and n != _SERVERS}
    resolve = {RESOLVE: options[RESOLVE]} if options.get(RESOLVE) else {}
    if not config and not settings and not resolve:
        return ""
    from core.client.net.client_config_files import is_reference
    from core.security.client_settings import SECRET_SETTINGS

    for name, value in settings.items():
        if name in SECRET_SETTINGS and not is_reference(value):
            raise UsageError(
                f"option kafka.{name}: Spark's plans and UI show what options say, and this is a secret",
                hint=f"option commandConfig names a file with it; or kafka.{name}=${{env:NAME}} takes it from there",
            )
    return json.dumps({"config": config, "settings": settings, **resolve})


def servers_of(options: Mapping[str, str]) -> str:
    """Returns `kafka.bootstrap.servers`, else the file's, or "" without any. Raises UsageError for an invalid file."""
    named, config = options.get(_SERVERS, ""), options.get(COMMAND_CONFIG.lower(), "")
    if named or not config:
        return named
    from core.client.net.client_config_files import read_settings_file

    settings, _ = read_settings_file(Path(config))
    return settings.get("bootstrap.servers") or settings.get("metadata.broker.list", "")


def settings_of(access: str) -> ClientSettings:
    """Returns the settings of a client. Raises UsageError if they are wrong."""
    from core.client.net.client_config_files import read_settings_file, replace_references
    from core.security.client_settings import parse_client_settings

    stored = json.loads(access or '{"config": "", "settings": {}}')
    settings = read_settings_file(Path(stored["config"]))[0] if stored["config"] else {}
    return parse_client_settings(settings | replace_references(stored["settings"], "options kafka.*"))


def connect(servers: str, access: str) -> KafkaClient:
    """Makes a client of the servers. Raises UsageError if settings are wrong, and what `KafkaClient` raises."""
    from core.client.net.kafka_client import KafkaClient

    if not access:
        return KafkaClient(parse_bootstrap(servers, "PLAINTEXT"))
    security = settings_of(access).security
    addresses = parse_bootstrap(servers, security.protocol)
    routes = None
    if resolve := json.loads(access).get(RESOLVE):
        from core.client.net.address_map import AddressMap

        routes = AddressMap.of([resolve], addresses)
    return KafkaClient(addresses, security=security, routes=routes)
