"""Reads as a member of a group: of either protocol, of a group in ZooKeeper, or as the only possible member."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import KafkaClient
from core.client.read.classic_member import ClassicMember
from core.client.read.cluster_source import ClusterSource, Subscription
from core.client.read.group_consumer import (
    CommittedOffsets,
    ConsumerMember,
    CoordinatorOffsets,
    GroupConsumer,
    Membership,
    Reset,
    SoleMember,
    has_consumer_protocol,
)
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError
from core.common.topic_partition import TopicPartition
from core.pipeline.consume_request import ensure_there, resolve
from core.pipeline.frontend import Frontend
from core.pipeline.record_printer import ConsumeRun, RecordPrinter, Sink
from core.pipeline.record_stream import Step, read_group, through

if TYPE_CHECKING:
    from core.pipeline.zookeeper_cluster import ZooKeeperCluster

_LEAVE_SECONDS = 10.0


def consume_group(run: ConsumeRun, steps: list[Step], sink: Sink) -> None:
    """Writes this member's records until a stop; in a directory without a server, until the end."""
    with _open_cluster(run) as (client, zookeeper):
        subscription = run.subscribe(client)
        source = ClusterSource(client, run.read_options())
        is_alone = zookeeper is None and run.session.find_server() is None
        ends = source.ends(subscription.topic_partitions()) if is_alone else {}
        if is_alone and run.request.follow:
            run.say("note: --follow changes nothing here: nobody can write while the group reads without a server")

        def begin(wanted: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
            there = source.ends(wanted)
            return ensure_there(resolve(run.request.from_, source, wanted, there), source, there, run.say)

        if zookeeper is not None:
            membership, offsets = _register(run, zookeeper)
        else:
            membership, offsets = _join(run, client, subscription, is_alone=is_alone)
        with _open_group(run, client, membership, offsets, begin) as consumer:
            printer = RecordPrinter(run, sink)
            for chunk in through(read_group(consumer), steps):
                if printer.print(chunk, consumer.done):
                    return
                if chunk is None and ends and all(consumer.positions.get(tp, 0) >= end for tp, end in ends.items()):
                    source.note_held_back(ends)
                    return


@contextmanager
def _open_cluster(run: ConsumeRun) -> Iterator[tuple[KafkaClient, ZooKeeperCluster | None]]:
    if run.session.zookeeper is not None:
        with run.session.open_by_zookeeper() as cluster:
            yield cluster.client, cluster
        return
    with run.session.open_client() as client:
        yield client, None


def _register(run: ConsumeRun, zookeeper: ZooKeeperCluster) -> tuple[Membership, CommittedOffsets]:
    request = run.request
    assert request.group is not None
    member = zookeeper.make_member(request.group, request.topics, is_pattern=request.find_pattern() is not None)
    return member, member


def _join(
    run: ConsumeRun, client: KafkaClient, subscription: Subscription, *, is_alone: bool
) -> tuple[Membership, CommittedOffsets]:
    """Returns a member of a group with a coordinator. `is_alone`: the directory is this process's own, and the group
    can have no other member.
    """
    request = run.request
    assert request.group is not None
    membership: Membership
    if is_alone:
        membership = _sole_member(client, request.group, subscription)
    else:
        named = request.group_protocol
        is_classic = not has_consumer_protocol(client) if named is None else named == "classic"
        member = ClassicMember if is_classic else ConsumerMember
        membership = member(client, request.group, subscription, request.group_instance_id)
    return membership, CoordinatorOffsets(client, request.group, membership, run.read_options())


@contextmanager
def _open_group(
    run: ConsumeRun, client: KafkaClient, membership: Membership, offsets: CommittedOffsets, begin: Reset
) -> Iterator[GroupConsumer]:
    """Reads as that member; commits and leaves at the end."""
    consumer = GroupConsumer(
        client,
        offsets,
        membership,
        begin,
        run.read_options(),
        commits_first=run.request.commit == "before",
        watermarks=run.watermarks,
    )
    try:
        yield consumer
    except ConnectionFailedError:
        if isinstance(offsets, CoordinatorOffsets):  # there is nobody to tell
            raise
        consumer.close()
        raise
    except KeyboardInterrupt:
        client.forget_connections()  # an answer may be under way
        _leave_in_time(consumer, run.session.frontend)
        raise
    except BaseException:
        consumer.close()
        raise
    consumer.close()


def _leave_in_time(consumer: GroupConsumer, frontend: Frontend) -> None:
    """Leaves; reports a silent or unreachable coordinator without a wait: the user has stopped the command."""
    problem = frontend.end_in_time(consumer.close, _LEAVE_SECONDS)
    if problem is not None:
        frontend.say(
            "warning: the offsets of records printed since the last commit, up to 5 s ago, were not committed: "
            f"{problem}"
        )


def _sole_member(client: KafkaClient, group: str, subscription: Subscription) -> SoleMember:
    """Returns the only member. Raises KafkaError(NON_EMPTY_GROUP) if the group in the directory has others."""
    left_over = [g for g in GroupAdmin(client).list_groups() if g.group_id == group and g.state.lower() != "empty"]
    if left_over:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group} had members when its server stopped",
            hint="a server on the directory forgets them after their session timeout: plog serve",
        )
    return SoleMember(frozenset(subscription.topic_partitions()))
