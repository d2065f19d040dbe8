"""`plog cluster status`."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import BootstrapServerOption, DataDirOption, default_data_dir, say, say_failures
from cli.output import OutputFormat, OutputOption, write_rows
from cli.session import session_of
from cli.table import Row

if TYPE_CHECKING:
    from core.cluster.cluster_description import BrokerDescription, ClusterDescription

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Show what a cluster consists of: its brokers, its controller, and what they support.\n\n"
    "\b\nExample:\n  plog cluster status --bootstrap-server 127.0.0.1:9092",
)


@app.callback()
def cluster() -> None:
    """Show what a cluster consists of: its brokers, its controller, and what they support."""


@app.command()
def status(
    api_versions: Annotated[
        bool, typer.Option("--api-versions", help="List the versions of each API instead of the brokers.")
    ] = False,
    output: OutputOption = OutputFormat.table,
    bootstrap_server: BootstrapServerOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Show a cluster's id, controller, features and brokers, and whether each broker can be reached from here.

    For a directory that nobody serves, it shows what the metadata log in it says. The exit code is 3 if a broker can't
    be reached.

    \b
    Example:
      plog cluster status --bootstrap-server 127.0.0.1:9092
    """
    from core.common.errors import UsageError

    is_served = session_of(bootstrap_server, data_dir).find_server() is not None
    if is_served:
        from core.client.cluster_status import describe_cluster

        with session_of(bootstrap_server, data_dir).open_client() as client:
            found = describe_cluster(client)
    else:
        from core.cluster.directory_cluster import read_cluster
        from core.log.directory_reader import DirectoryReader

        if api_versions:
            raise UsageError("--api-versions needs a server: nobody serves the data directory")
        found = read_cluster(DirectoryReader(data_dir or default_data_dir()).directory)
    if output is OutputFormat.table:
        _say_cluster(found, is_served=is_served)
    if api_versions:
        write_rows(
            _api_rows(found, shows_all=output is OutputFormat.table),
            ["key", "api", "min", "max", "brokers"],
            output,
            drops=["key"],
        )
    else:
        _write_brokers(found, output)
    code = say_failures([broker.failure for broker in found.brokers if broker.failure is not None])
    raise typer.Exit(code)


def _say_cluster(found: ClusterDescription, *, is_served: bool) -> None:
    controller = f"controller {found.controller_id}" if found.controller_id >= 0 else "controller not known"
    voters = f" (voters {', '.join(map(str, found.voters))})" if found.voters else ""
    say(f"cluster {found.cluster_id or 'without an id'}: {controller}{voters}, brokers: {len(found.brokers)}")
    if found.features:
        features = ", ".join(f"{name}={level}" for name, level in sorted(found.features.items()))
        say(f"features: {features}")
    if not is_served:
        say("nobody serves it: this is what the metadata log says")


_COLUMNS = ["broker", "listeners", "rack", "controller", "state", "apis", "failure"]
_DROPS = ["apis", "rack"]


def _write_brokers(found: ClusterDescription, output: OutputFormat) -> None:
    rows: list[Row] = [
        {
            "broker": broker.broker_id,
            "listeners": [f"{name}://{address}" if name else address for name, address in broker.listeners.items()],
            "rack": broker.rack,
            "controller": broker.broker_id == found.controller_id,
            "state": _state(broker),
            "apis": len(broker.versions) if broker.versions is not None else None,
            "failure": broker.failure.message if broker.failure is not None else None,
            "cluster_id": found.cluster_id,
            "controller_id": found.controller_id if found.controller_id >= 0 else None,
            "voters": list(found.voters),
            "features": found.features,
        }
        for broker in found.brokers
    ]
    if output is OutputFormat.table:
        shown = [{**row, "controller": "yes" if row["controller"] else ""} for row in rows]
        kept = [name for name in _COLUMNS[:-1] if name in ("broker", "listeners") or any(row[name] for row in shown)]
        write_rows(shown, kept, output, drops=_DROPS)
    else:
        write_rows(rows, [*_COLUMNS, "cluster_id", "controller_id", "voters", "features"], output)


def _state(broker: BrokerDescription) -> str:
    if broker.is_fenced:
        return "fenced"
    if broker.failure is not None:
        return "unreachable"
    if broker.versions is not None:
        return "reachable"
    return "registered" if broker.listeners else "not registered"


def _api_rows(found: ClusterDescription, *, shows_all: bool) -> list[Row]:
    """Gives one row for each range of an API's versions, with the brokers that have it; `shows_all`: even if all do."""
    from core.protocol.api_names import API_NAMES

    asked = sum(broker.versions is not None for broker in found.brokers)
    brokers: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for broker in found.brokers:
        for key, (low, high) in (broker.versions or {}).items():
            brokers[key, low, high].append(broker.broker_id)
    return [
        {
            "key": key,
            "api": API_NAMES.get(key, "of a newer Kafka"),
            "min": low,
            "max": high,
            "brokers": "all" if shows_all and len(ids) == asked else ids,
        }
        for (key, low, high), ids in sorted(brokers.items())
    ]
