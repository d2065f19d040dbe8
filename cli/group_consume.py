"""`plog consume --group`: a member of a group, of either protocol, or the only one where nobody else can be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cli.options import say
from cli.stop_signals import undivided
from core.client.classic_member import ClassicMember
from core.client.consumer import READ_COMMITTED, READ_UNCOMMITTED
from core.client.group_admin import GroupAdmin
from core.client.group_consumer import GroupConsumer, Reset
from core.client.kafka_client import KafkaClient
from core.client.membership import ConsumerMember, Membership, SoleMember
from core.client.patience import Patience
from core.client.subscription import Subscription
from core.client.watermarks import Watermarks
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, ConnectionFailedError, KafkaError
from core.common.topic_partition import TopicPartition

_LEAVE_SECONDS = 10.0


@contextmanager
def open_group(
    client: KafkaClient,
    group: str,
    subscription: Subscription,
    begin: Reset,
    *,
    is_classic: bool,
    group_instance_id: str | None,
    is_alone: bool,
    read_committed: bool,
    with_control: bool,
    commits_first: bool,
    patience: Patience,
    watermarks: dict[TopicPartition, Watermarks],
) -> Iterator[GroupConsumer]:
    """It commits and leaves at the end. `is_alone`: the directory is this process's own, nobody else can be in it."""
    membership: Membership
    if is_alone:
        membership = _sole_member(client, group, subscription)
    elif is_classic:
        membership = ClassicMember(client, group, subscription, group_instance_id)
    else:
        membership = ConsumerMember(client, group, subscription, group_instance_id)
    consumer = GroupConsumer(
        client,
        group,
        membership,
        begin,
        isolation_level=READ_COMMITTED if read_committed else READ_UNCOMMITTED,
        with_control=with_control,
        patience=patience,
        commits_first=commits_first,
        watermarks=watermarks,
    )
    try:
        yield consumer
    except ConnectionFailedError:  # there is nobody to tell
        raise
    except KeyboardInterrupt:
        client.forget_connections()  # an answer may be under way
        _leave_in_time(consumer)
        raise
    except BaseException:
        consumer.close()
        raise
    consumer.close()


def _leave_in_time(consumer: GroupConsumer) -> None:
    """Says so if the coordinator can't be told, or does not answer: who stops a command does not wait for it."""
    problem: object = f"no answer in {_LEAVE_SECONDS:g} s"
    try:
        with suppress(KeyboardInterrupt), undivided(_LEAVE_SECONDS):
            consumer.close()
            problem = None
    except (KafkaError, AccessError) as error:
        problem = error
    if problem is not None:
        say(f"warning: not committed: what was printed since the last commit, up to 5 s before: {problem}")


def _sole_member(client: KafkaClient, group: str, subscription: Subscription) -> SoleMember:
    """KafkaError(NON_EMPTY_GROUP) where a directory that has no server says that there are others."""
    left_over = [g for g in GroupAdmin(client).list_groups() if g.group_id == group and g.state.lower() != "empty"]
    if left_over:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group} has members, as of when its server stopped",
            hint="a server on the directory forgets them after their session timeout: plog serve",
        )
    return SoleMember(frozenset(subscription.topic_partitions()))
