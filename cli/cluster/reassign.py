"""`plog cluster reassign`: moves replicas to other brokers, watches such moves, and cancels them. `plog cluster drain`:
moves everything off a broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cli.cluster.reassignment_common import (
    THROTTLE,
    TO,
    MoveProgress,
    carry_out,
    find_racks,
    make_reassigner,
    parse_broker,
    parse_brokers,
    parse_rate,
    parse_topics,
    say_progress,
    warn_of_leaderless,
    watch,
    write_moves,
    write_progress,
)
from cli.cluster.served_cluster import open_cluster
from cli.data_location import Place, ReadPlace, typed_place
from cli.options import DRY_RUN
from cli.output import OUTPUT, OutputFormat
from cli.terminal import say, say_failures
from core.cluster.assignment.planned_move import PlannedMove, read_plan
from core.cluster.description.cluster_health import names_text
from core.cluster.description.replicated_partition import ReplicatedPartition
from core.common.command_option import argument, flag, option
from core.common.errors import UsageError
from core.common.filesystem import access_error
from core.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient


def reassign(
    topics: str | None = option("Which topics.", metavar="TOPIC[,..]", completes="topic"),
    to: str | None = TO,
    replication_factor: int | None = option("How many replicas each partition gets. Default: as many as now.", min=1),
    plan: Path | None = option("Take the plan from this file of kafka-reassign-partitions.sh.", metavar="FILE"),
    status: bool = flag("Watch the moves under way, whoever began them; --dry-run looks once."),
    cancel: bool = flag("Cancel the moves under way, whoever began them: of --topics, or all."),
    throttle: str | None = THROTTLE,
    dry_run: bool = DRY_RUN,
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Move replicas to other brokers: plan it, begin it, and watch it until it is done.

    The plan spreads the replicas over racks and brokers, and moves as little as that allows. Ctrl-C ends the watching,
    and not the move: --status goes on watching, --cancel ends the move.
    """
    rate, brokers = parse_rate(throttle), parse_brokers(to)
    names = parse_topics(topics)
    _ensure_one_way(names, plan, status=status, cancel=cancel)
    if (plan is not None or status or cancel) and (brokers is not None or replication_factor is not None):
        raise UsageError("--to and --replication-factor make a plan, and go with --topics only")
    if cancel and rate is not None:
        raise UsageError("--throttle has no meaning with --cancel, which removes it")
    with open_cluster("reassign", place) as client:
        for name in names or ():
            client.topic(name)  # whose error names the topic that was perhaps meant
        if cancel:
            code = _cancel(client, names, output, dry_run=dry_run)
        elif status:
            code = _watch(client, names, rate, output, dry_run=dry_run)
        else:
            moves = _read(client, plan) if plan is not None else _make(client, names or [], brokers, replication_factor)
            code = carry_out(client, moves, rate, output, dry_run=dry_run)
    raise typer.Exit(code)


def _ensure_one_way(names: Sequence[str] | None, plan: Path | None, *, status: bool, cancel: bool) -> None:
    """Raises UsageError unless the options agree on one action."""
    if status and cancel:
        raise UsageError("--status and --cancel contradict each other")
    if plan is not None and (status or cancel or names is not None):
        raise UsageError("--plan says which partitions, and goes without --topics, --status and --cancel")
    if names is None and plan is None and not (status or cancel):
        raise UsageError(
            "expected what to move",
            hint="--topics TOPIC[,..] makes a plan, --plan FILE takes one; --status and --cancel are for moves under "
            "way",
        )


# --- plans


def _make(
    client: KafkaClient, names: Sequence[str], wanted: Sequence[int] | None, factor: int | None
) -> list[PlannedMove]:
    from core.client.cluster_admin.cluster_partitions import read_partitions
    from core.cluster.assignment.reassignment_planner import plan_spread

    racks = find_racks(client, wanted)
    everything = read_partitions(client, None, [])
    planned = [p for p in everything if p.partition.topic in names]
    return plan_spread(planned, racks, everything, _sizes_of(client, planned), factor)


def _sizes_of(client: KafkaClient, placed: Sequence[ReplicatedPartition]) -> Mapping[TopicPartition, int]:
    """Returns the sizes of what is to move; warns of partitions without a leader. Raises what `ensure_free` raises."""
    from core.client.admin.admin import brief_admin
    from core.client.cluster_admin.reassigner import ensure_free

    partitions = [p.partition for p in placed]
    ensure_free(client, partitions)
    warn_of_leaderless(placed)
    with brief_admin(client) as admin:
        return admin.log_sizes(partitions)


def _read(client: KafkaClient, file: Path) -> list[PlannedMove]:
    from core.client.admin.admin import brief_admin
    from core.client.cluster_admin.reassigner import ensure_free

    try:
        text = file.read_text()
    except OSError as error:
        raise access_error(error, file, "read") from error
    except UnicodeDecodeError:
        raise UsageError(f"{file} is no plan: it is no text") from None
    known = client.refresh()
    numbers = {topic.name: sorted(topic.partitions) for topic in known.values()}
    racks = find_racks(client, None)
    targets = read_plan(text, str(file), numbers, racks)
    ensure_free(client, targets)
    with brief_admin(client) as admin:
        sizes = admin.log_sizes(targets)
    moves = [
        PlannedMove(
            partition, known[partition.topic].partitions[partition.partition].replicas, target, sizes.get(partition)
        )
        for partition, target in sorted(targets.items())
    ]
    return [move for move in moves if move.changes]


# --- ongoing moves


def _watch(
    client: KafkaClient, names: Sequence[str] | None, rate: int | None, output: OutputFormat, *, dry_run: bool
) -> int:
    progress = MoveProgress()
    reassigner = make_reassigner(client, progress)
    moves = reassigner.find_ongoing(names)
    state = reassigner.look(moves, is_quiet=not dry_run)
    if moves:
        say_progress(moves, state)
    else:
        say("nothing is being moved")
    write_progress(moves, state, output)
    if dry_run:
        return 0
    if rate is not None and moves:
        reassigner.change_throttle(moves, rate)
    return watch(client, reassigner, moves, progress)


def _cancel(client: KafkaClient, names: Sequence[str] | None, output: OutputFormat, *, dry_run: bool) -> int:
    reassigner = make_reassigner(client, MoveProgress())
    moves = reassigner.find_ongoing(names)
    write_moves(moves, output)
    if dry_run:
        say(f"would cancel {len(moves):,} moves; nothing was changed")
        return 0
    refused = reassigner.cancel(moves) if moves else {}
    if not moves:
        reassigner.remove_throttle()
    say(f"cancelled {len(moves) - len(refused):,} moves" if moves else "nothing is being moved")
    return say_failures(list(refused.values()))


# --- all that a broker holds


def drain(
    name: str = argument("The id of the broker.", metavar="BROKER"),
    to: str | None = TO,
    throttle: str | None = THROTTLE,
    dry_run: bool = DRY_RUN,
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Move all replicas off a broker, so that it can be stopped for good.

    It may be down already. The other replicas stay where they are.
    """
    broker, rate, brokers = parse_broker(name), parse_rate(throttle), parse_brokers(to)
    with open_cluster("drain", place) as client:
        code = carry_out(client, _plan_drain(client, broker, brokers), rate, output, dry_run=dry_run)
        if not dry_run and code == 0:
            _say_rest(client, broker)
    raise typer.Exit(code)


def _plan_drain(client: KafkaClient, broker: int, wanted: list[int] | None) -> list[PlannedMove]:
    """Raises UsageError for an unknown broker, and if the others can't hold the replicas."""
    from core.client.admin.cluster_status import describe_cluster
    from core.client.cluster_admin.cluster_partitions import read_partitions
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
    return plan_drain(broker, held, racks, everything, _sizes_of(client, held))


def _say_rest(client: KafkaClient, broker: int) -> None:
    """Reports replicas that the broker still has: those of new topics."""
    from core.client.cluster_admin.cluster_partitions import read_partitions

    rest = [p.partition for p in read_partitions(client, None, []) if broker in p.replicas]
    if rest:
        say(f"note: broker {broker} has got new replicas meanwhile: {names_text(rest)}; run the command again")
    else:
        say(f"broker {broker} holds no replicas any more")
