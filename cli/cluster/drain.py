"""`plog cluster drain`: moves everything off a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.cluster.reassignment_common import (
    ThrottleOption,
    ToOption,
    carry_out,
    find_racks,
    parse_broker,
    parse_brokers,
    parse_rate,
    warn_of_leaderless,
)
from cli.cluster.served_cluster import open_cluster
from cli.data_location import Place, ReadPlace, typed_place
from cli.options import DryRunOption
from cli.output import OutputFormat, OutputOption
from cli.terminal import say
from core.common.command_option import Argument
from core.common.errors import UsageError

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient
    from core.cluster.assignment.planned_move import PlannedMove


def drain(
    name: Annotated[str, Argument("The id of the broker.", metavar="BROKER")],
    to: ToOption = None,
    throttle: ThrottleOption = None,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.table,
    place: ReadPlace = Place(),
) -> None:
    """Move all replicas off a broker, so that it can be stopped for good.

    It may be down already. The other replicas stay where they are.

    \b
    Example:
      plog cluster drain 3 --dry-run --bootstrap-server 127.0.0.1:9092
    """
    broker, rate, brokers = parse_broker(name), parse_rate(throttle), parse_brokers(to)
    with open_cluster("drain", place) as client:
        code = carry_out(client, _plan(client, broker, brokers), rate, output, dry_run=dry_run)
        if not dry_run and code == 0:
            _say_rest(client, broker)
    raise typer.Exit(code)


def _plan(client: KafkaClient, broker: int, wanted: list[int] | None) -> list[PlannedMove]:
    """Raises UsageError for an unknown broker, and if the others can't hold the replicas."""
    from core.client.admin.cluster_status import describe_cluster
    from core.client.cluster_admin.cluster_partitions import read_partitions
    from core.client.cluster_admin.reassigner import ensure_free
    from core.client.cluster_admin.replica_sizes import largest_sizes
    from core.cluster.assignment.reassignment_planner import plan_drain

    if wanted is not None and broker in wanted:
        raise UsageError(f"--to names broker {broker} itself")
    everything = read_partitions(client, None, [])
    held = [p for p in everything if broker in p.replicas]
    known = {one.broker_id for one in describe_cluster(client).brokers}
    if not held and broker not in known:
        raise UsageError(
            f"broker {broker} is not in the cluster; its brokers are {', '.join(map(str, sorted(known)))}",
            hint=f"plog cluster brokers{typed_place()}",
        )
    racks = {one: rack for one, rack in find_racks(client, wanted).items() if one != broker}
    ensure_free(client, [p.partition for p in held])
    warn_of_leaderless(held)
    sizes = largest_sizes(client, [p.partition for p in held])
    return plan_drain(broker, held, racks, everything, sizes)


def _say_rest(client: KafkaClient, broker: int) -> None:
    """Reports replicas that the broker still has: those of new topics."""
    from core.client.cluster_admin.cluster_partitions import read_partitions
    from core.cluster.description.cluster_health import names_text

    rest = [p.partition for p in read_partitions(client, None, []) if broker in p.replicas]
    if rest:
        say(f"note: broker {broker} has got new replicas meanwhile: {names_text(rest)}; run the command again")
    else:
        say(f"broker {broker} holds no replicas any more")
