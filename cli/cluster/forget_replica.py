"""`plog cluster forget-replica`: partitions stop waiting for the replicas of a broker that is gone for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cli.cluster.elect import find_leaders
from cli.cluster.reassignment_common import parse_broker
from cli.cluster.served_cluster import open_cluster
from cli.data_location import Place, ReadPlace, typed_place
from cli.options import DryRunOption, YesOption, ensure_meant
from cli.output import OutputFormat, OutputOption, Row, write_rows
from cli.terminal import say
from core.common.command_option import Argument
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient
    from core.cluster.controller.leaderless_partition import LeaderlessPartition
    from core.cluster.description.cluster_description import ClusterDescription
    from core.cluster.description.replicated_partition import ReplicatedPartition

_COLUMNS = ["partition", "leader", "waits_for", "result"]


def forget_replica(
    name: Annotated[str, Argument("The id of the broker that is gone for good.", metavar="BROKER")],
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.table,
    place: ReadPlace = Place(),
) -> None:
    """Declare that a broker is gone for good: partitions without a leader no longer wait for its replicas.

    Once all other replicas are back, the one with the most records leads; records that only that broker had are given
    up. A broker that is registered is refused. If the controller is Kafka's, use elect --unclean.

    \b
    Example:
      plog cluster forget-replica 3 --dry-run --bootstrap-server 127.0.0.1:9092
    """
    from core.client.admin.cluster_status import describe_cluster
    from core.client.cluster_admin.cluster_admin import ClusterAdmin
    from core.client.cluster_admin.cluster_partitions import read_partitions, report_leaderless

    broker = parse_broker(name)
    with open_cluster("forget-replica", place) as client:
        found = describe_cluster(client)
        _ensure_can_be(found, broker)
        placed = read_partitions(client, None, [])
        waiting = [one for one in report_leaderless(client, found, placed, []) if broker in one.candidates]
        for one in waiting:
            say(f"warning: {_cost(one, broker)}")
        if not waiting:
            say(f"no partition without a leader waits for broker {broker}")
        if dry_run:
            say("would do this without --dry-run; nothing was changed")
            write_rows([_planned(one.without(broker)) for one in waiting], _COLUMNS, output)
            return
        if waiting and not yes:
            ensure_meant(f"records that only broker {broker} had are given up", "do it")
        ClusterAdmin(client).forget_broker(broker)
        rows = _rows(client, placed, [one.without(broker) for one in waiting])
    write_rows(rows, _COLUMNS, output)
    if any(broker in p.replicas for p in placed):
        say(f"hint: plog cluster drain {broker}{typed_place()} gives its replicas to others")


def _ensure_can_be(found: ClusterDescription, broker: int) -> None:
    """Raises KafkaError for a live broker, and for a controller without this request."""
    from core.client.cluster_admin.cluster_partitions import has_plogs_controller

    controller = next((one for one in found.brokers if one.broker_id == found.controller_id), None)
    if found.has_quorum or (controller is not None and controller.versions and not has_plogs_controller(found)):
        whose = "of a cluster in KRaft" if found.has_quorum else f"broker {found.controller_id}, which is Kafka's,"
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the controller {whose} does not support this: it waits for a replica in the ISR",
            hint=f"plog cluster elect --unclean lets another replica lead{typed_place()}",
        )
    if any(one.broker_id == broker and not one.is_fenced for one in found.brokers):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"broker {broker} is registered: it lives, and is not gone for good"
        )


def _cost(one: LeaderlessPartition, broker: int) -> str:
    after = one.without(broker)
    leader = after.next_leader
    if leader is None:
        return f"{one.partition}: records that only broker {broker} has are given up, and no other replica is there yet"
    end = after.ends[leader].offset
    return f"{one.partition}: records that only broker {broker} may have from offset {end} on are given up"


def _planned(after: LeaderlessPartition) -> Row:
    leads = not after.absent and after.next_leader is not None
    result = f"{after.next_leader} would lead" if leads else "would wait for others"
    return {"partition": str(after.partition), "leader": None, "waits_for": after.absent, "result": result}


def _rows(
    client: KafkaClient, placed: Sequence[ReplicatedPartition], waited: Sequence[LeaderlessPartition]
) -> list[Row]:
    names = {one.partition for one in waited}
    elected = {one.partition for one in waited if not one.absent}
    leaders = find_leaders(client, [p for p in placed if p.partition in names], elected) if waited else {}
    rows: list[Row] = []
    for one in waited:
        now = leaders.get(one.partition, -1)
        leader, absent = (now, []) if now >= 0 else (None, one.absent)
        result = "elected" if leader is not None else "waits for others" if absent else "is not led yet"
        rows.append({"partition": str(one.partition), "leader": leader, "waits_for": absent, "result": result})
    return rows
