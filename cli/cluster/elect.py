"""`plog cluster elect`: elects leaders, and reports the result of each partition. `plog cluster forget-replica`:
partitions stop waiting for the replicas of a broker that is gone for good, so that another is elected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from cli.cluster.reassignment_common import parse_broker
from cli.cluster.served_cluster import PARTITIONS, find_partitions, open_cluster
from cli.data_location import Place, ReadPlace, typed_place
from cli.options import DRY_RUN, YES, ensure_meant
from cli.output import OUTPUT, Listing, OutputFormat, Row
from cli.terminal import say
from core.cluster.description.cluster_description import ClusterDescription
from core.cluster.description.cluster_health import names_text
from core.cluster.description.replicated_partition import ReplicatedPartition
from core.common.command_option import argument, flag
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, PlogError, UsageError
from core.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient
    from core.cluster.controller.leaderless_partition import LeaderlessPartition

_ELECTED = Listing("partition before leader result", drops="before")
_FORGOTTEN = Listing("partition leader waits_for result")


def elect(
    names: list[str] | None = PARTITIONS,
    preferred: bool = flag("Give leadership back to the first replica of each, if it is in sync."),
    unclean: bool = flag("Let a replica that is not in sync lead, if no other can: confirmed records may be lost."),
    yes: bool = YES,
    dry_run: bool = DRY_RUN,
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Have leaders elected: the preferred ones, or, if data must be given up, any that live.

    The exit code is 1 if a partition could not get its leader. That one leads already is no failure.
    """
    from core.client.cluster_admin.cluster_admin import ClusterAdmin, ElectionType

    if preferred is unclean:
        raise UsageError("expected one of --preferred and --unclean", hint="plog help cluster")
    with open_cluster("elect", place) as client:
        placed = _find(client, names or (), is_unclean=unclean)
        leaderless = _say_what_is_lost(client, placed) if unclean else {}
        if dry_run:
            if any(_needs_election(p, is_unclean=unclean) for p in placed):
                say("would do this without --dry-run; nothing was changed")
            elif placed:
                say("no election is needed")
            first = {partition: one.next_leader for partition, one in leaderless.items()}
            rows = [_planned(p, client.node_ids, first.get(p.partition), is_unclean=unclean) for p in placed]
            _write(rows, output)
            return
        if unclean and any(not p.has_leader for p in placed) and not yes:
            ensure_meant("--unclean may lose confirmed records", "elect")
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        results = ClusterAdmin(client).elect_leaders(kind, [p.partition for p in placed]) if placed else {}
        leaders = find_leaders(client, placed, _newly_led(placed, results, is_unclean=unclean)) if placed else {}
    rows, failed = _rows(placed, leaders, results)
    _write(rows, output)
    raise typer.Exit(1 if failed else 0)


def _write(rows: Sequence[Row], output: OutputFormat) -> None:
    if not rows:
        say("every partition is led by its preferred leader")
        if output is OutputFormat.table:
            return
    _ELECTED.write(rows, output)


def _find(client: KafkaClient, names: Sequence[str], *, is_unclean: bool) -> list[ReplicatedPartition]:
    """Returns the named partitions, or, for all, those not led by their preferred leader."""
    from core.client.cluster_admin.cluster_partitions import read_partitions

    if is_unclean:
        _ensure_named(client, names)
    wanted = set(find_partitions(client, names))
    placed = [p for p in read_partitions(client, sorted({p.topic for p in wanted}), []) if p.partition in wanted]
    if not names or list(names) == ["all"]:
        placed = [p for p in placed if not p.has_preferred_leader]
    return placed


def _ensure_named(client: KafkaClient, names: Sequence[str]) -> None:
    """Raises UsageError unless each partition is named: each may lose records."""
    known = client.refresh()
    whole = next((name for name in names if name in known), None)
    if whole is not None:
        numbers = ",".join(map(str, sorted(known[whole].partitions)))
        raise UsageError(f"--unclean needs each partition of {whole} by its number", hint=f"{whole}:{numbers}")
    if not names or list(names) == ["all"]:
        raise UsageError(
            "--unclean needs the partitions by name: records may be lost in each of them", hint="plog cluster status"
        )


def _say_what_is_lost(
    client: KafkaClient, placed: Sequence[ReplicatedPartition]
) -> dict[TopicPartition, LeaderlessPartition]:
    """Reports, for each partition without a leader, what each replica has, and which records would be given up."""
    from core.client.admin.cluster_status import describe_cluster
    from core.client.cluster_admin.cluster_partitions import report_leaderless

    if all(p.has_leader for p in placed):
        return {}
    leaderless = report_leaderless(client, describe_cluster(client), placed, [])
    for one in leaderless:
        say(f"warning: {one}")
    return {one.partition: one for one in leaderless}


def _needs_election(p: ReplicatedPartition, *, is_unclean: bool) -> bool:
    return not (p.has_leader if is_unclean else p.has_preferred_leader)


def _planned(
    p: ReplicatedPartition, brokers: Collection[int], next_leader: int | None = None, *, is_unclean: bool
) -> Row:
    """Returns the row of a planned election, with these live brokers. `next_leader` is the broker that would lead, if a
    live one has reported its log end.
    """
    first = p.replicas[0]
    if is_unclean:
        living = [b for b in p.replicas if b not in p.offline] or [b for b in p.replicas if b in brokers]
        result = f"{p.leader} leads: not needed" if p.has_leader else f"one of {living} would lead"
        if next_leader is not None:
            result = f"{next_leader} would lead"
        elif not p.has_leader and not living:
            result = "no replica lives: refused"
    elif p.has_preferred_leader:
        result = f"{first} leads: not needed"
    elif first not in brokers:
        result = f"{first} is away: refused"
    else:
        result = f"{first} would lead" if first in p.isr else f"{first} is not in sync: refused"
    return {"partition": str(p.partition), "before": _leader(p), "leader": _leader(p), "result": result}


def _newly_led(
    placed: Iterable[ReplicatedPartition], results: Mapping[TopicPartition, KafkaError | None], *, is_unclean: bool
) -> set[TopicPartition]:
    """Returns the partitions that have another leader than before. The controller may answer that an election was not
    needed because the request was repeated after a late first answer.
    """
    found = set()
    for p in placed:
        error, is_needed = results[p.partition], _needs_election(p, is_unclean=is_unclean)
        if error is None or (error.code is ErrorCode.ELECTION_NOT_NEEDED and is_needed):
            found.add(p.partition)
    return found


def find_leaders(
    client: KafkaClient, placed: Sequence[ReplicatedPartition], elected: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns the present leaders, and reports partitions whose leader is unknown, with the reason: the controller's
    answer must be shown in any case.
    """
    from core.client.cluster_admin.cluster_partitions import read_leaders_when_heard

    try:
        leaders = read_leaders_when_heard(client, placed, elected)
    except PlogError as error:
        say(f"note: the present leaders are not known: {error.message}")
        return {}
    if unknown := [p.partition for p in placed if p.partition not in leaders]:
        say(
            f"note: the present leader of {names_text(unknown)} is not known: the broker that was asked has not "
            "heard of the election yet, or the partition is gone"
        )
    return leaders


def _rows(
    placed: Iterable[ReplicatedPartition],
    leaders: Mapping[TopicPartition, int],
    results: Mapping[TopicPartition, KafkaError | None],
) -> tuple[list[Row], int]:
    """Returns the rows, and how many partitions were refused; the leader is empty if it is unknown."""
    rows: list[Row] = []
    failed = 0
    for p in placed:
        error, now = results[p.partition], leaders.get(p.partition, -1)
        result = "elected"
        if error is not None:
            result = (
                "not needed" if error.code is ErrorCode.ELECTION_NOT_NEEDED else f"{error.code.name}: {error.message}"
            )
            failed += error.code is not ErrorCode.ELECTION_NOT_NEEDED
        leader = now if now >= 0 else None
        rows.append({"partition": str(p.partition), "before": _leader(p), "leader": leader, "result": result})
    return rows, failed


def _leader(p: ReplicatedPartition) -> int | None:
    return p.leader if p.has_leader else None


# --- replicas that are given up


def forget_replica(
    name: str = argument("The id of the broker that is gone for good.", metavar="BROKER"),
    yes: bool = YES,
    dry_run: bool = DRY_RUN,
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Declare that a broker is gone for good: partitions without a leader no longer wait for its replicas.

    Once all other replicas are back, the one with the most records leads; records that only that broker had are given
    up. A broker that is registered is refused. If the controller is Kafka's, use elect --unclean.
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
            _FORGOTTEN.write([_planned_row(one.without(broker)) for one in waiting], output)
            return
        if waiting and not yes:
            ensure_meant(f"records that only broker {broker} had are given up", "do it")
        ClusterAdmin(client).forget_broker(broker)
        rows = _forgotten_rows(client, placed, [one.without(broker) for one in waiting])
    _FORGOTTEN.write(rows, output)
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


def _planned_row(after: LeaderlessPartition) -> Row:
    leads = not after.absent and after.next_leader is not None
    result = f"{after.next_leader} would lead" if leads else "would wait for others"
    return {"partition": str(after.partition), "leader": None, "waits_for": after.absent, "result": result}


def _forgotten_rows(
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
