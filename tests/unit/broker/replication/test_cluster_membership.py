"""What the controller of a cluster tells a member: LeaderAndIsr, StopReplica and UpdateMetadata, with every fence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.broker.observe.metrics import broker_metrics
from core.cluster.image.cluster_member_metadata import NotInformedError
from core.cluster.image.metadata_image import NO_LEADER
from core.cluster.partition.partition import Role
from core.common.error_code import ErrorCode
from core.common.errors import MalformedMessageError
from core.common.pending import Pending
from core.common.task import finish
from core.common.topic_partition import TopicPartition
from core.protocol.schema.control_request import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    LeaderAndIsrRequest,
)
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, ReplicaState
from core.protocol.schema.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from core.protocol.schema.metadata import METADATA, MetadataRequest
from tests.support.broker import (
    SteeredNode,
    add_topic,
    ask,
    decode,
    fetch,
    open_broker,
    produce_values,
    send,
    values_of,
)
from tests.support.fake_entry import FakeEntry
from tests.support.member import ANOTHER_ID, BROKER_EPOCH, OTHER, T0, TOPIC_ID, US, Member, playing


async def test_a_new_directory_is_one_that_kafka_could_take_over(tmp_path: Path) -> None:
    """Its brokers with ZooKeeper start on version 0 alone, with these keys."""
    for _ in range(2):
        async with playing(tmp_path):
            lines = (tmp_path / "meta.properties").read_text().splitlines()
        assert lines[2:] == ["broker.id=5", "version=0", "cluster.id=a-cluster-of-the-tests"]


async def test_it_leads_and_follows_as_it_is_told(member: Member) -> None:
    assert member.assign() is ErrorCode.NONE
    assert member.role() is Role.LEADING
    assert member.assign(leader=OTHER, epoch=1) is ErrorCode.NONE
    assert member.role() is Role.FOLLOWING
    assert member.assign(leader=-1, epoch=2) is ErrorCode.NONE
    assert member.role() is Role.OFFLINE
    assert member.assign(replicas=[US], epoch=3) is ErrorCode.NONE
    assert member.role() is Role.ALONE
    produce_values(member.node, b"one")
    assert values_of(fetch(member.node, 0)) == [b"one"]


async def test_followers_are_answered_before_the_metadata_tell_of_the_topic(member: Member) -> None:
    """The controller tells those that hold a new topic's replicas first."""
    member.assign()
    assert TOPIC_ID not in member.node.services.image.topics_by_id
    wanted = FetchPartition(0, 0, fetch_offset=0, log_start_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=[FetchTopic("", TOPIC_ID, [wanted])])
    request.replica_state = ReplicaState(OTHER, -1)
    answer = ask(member.node, FETCH, request, 17)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE


async def test_only_a_higher_leader_epoch_is_taken(member: Member) -> None:
    assert member.assign(epoch=3) is ErrorCode.NONE
    for epoch in (3, 2):
        assert member.assign(leader=OTHER, epoch=epoch) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert member.role() is Role.LEADING


async def test_requests_of_the_past_are_refused(member: Member) -> None:
    """Those of an earlier controller, and those that were meant for an earlier life of the broker (KIP-380)."""
    assert member.assign(fence=(7, BROKER_EPOCH)) is ErrorCode.NONE
    before = member.node.services.image
    for fence, error in (
        ((6, BROKER_EPOCH), ErrorCode.STALE_CONTROLLER_EPOCH),
        ((7, BROKER_EPOCH - 1), ErrorCode.STALE_BROKER_EPOCH),
    ):
        assert member.assign(leader=OTHER, epoch=9, fence=fence) is error
        assert member.stop(epoch=9, deletes=True, fence=fence) is error
        assert member.update(leader=OTHER, epoch=9, fence=fence) is error
    assert member.role() is Role.LEADING
    assert member.node.services.image == before


async def test_a_later_life_than_is_known_is_let_through(member: Member) -> None:
    """The controller may know of a registration before its broker does (KAFKA-9839)."""
    assert member.assign(fence=(1, BROKER_EPOCH + 1)) is ErrorCode.NONE


async def test_a_partition_that_is_not_ours(member: Member) -> None:
    assert member.assign(leader=OTHER, replicas=[OTHER]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert member.role() is None


async def test_it_says_nothing_of_topics_before_the_controller_has_told_it(member: Member) -> None:
    """It would have to say that there are none."""
    with pytest.raises(NotInformedError):
        ask(member.node, METADATA, MetadataRequest(None))
    assert member.update() is ErrorCode.NONE
    assert [topic.name for topic in ask(member.node, METADATA, MetadataRequest(None)).topics] == ["t"]


async def test_news_of_leaders_change_no_role(member: Member) -> None:
    """UpdateMetadata may come before LeaderAndIsr, and after a later one."""
    assert member.update(leader=US, epoch=1) is ErrorCode.NONE
    assert member.role() is None
    assert fetch(member.node, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert member.assign(epoch=1) is ErrorCode.NONE
    assert member.role() is Role.LEADING
    assert member.update(leader=OTHER, epoch=2) is ErrorCode.NONE
    assert member.role() is Role.LEADING


async def test_what_is_stopped_is_kept_and_what_is_deleted_goes(member: Member, tmp_path: Path) -> None:
    member.assign(leader=OTHER, epoch=1)
    assert member.stop(epoch=0) is ErrorCode.FENCED_LEADER_EPOCH
    assert member.role() is Role.FOLLOWING
    assert member.stop(epoch=1) is ErrorCode.NONE
    assert member.role() is Role.OFFLINE
    assert (tmp_path / "t-0").is_dir()
    assert member.stop(epoch=-2, deletes=True) is ErrorCode.NONE
    assert member.role() is None
    assert not (tmp_path / "t-0").exists()
    assert member.assign(topic_id=ANOTHER_ID) is ErrorCode.NONE  # a topic of that name was made again
    assert member.node.services.replicas.partitions[T0].topic_id == ANOTHER_ID


async def test_one_partition_of_a_topic_goes_and_comes_back(member: Member) -> None:
    """As when a reassignment takes it elsewhere and back."""
    member.assign(0)
    member.assign(1)
    assert member.stop(1, epoch=0, deletes=True) is ErrorCode.NONE
    assert member.role(TopicPartition("t", 1)) is None
    assert member.role() is Role.LEADING
    assert member.assign(1, leader=OTHER, epoch=1) is ErrorCode.NONE
    assert member.role(TopicPartition("t", 1)) is Role.FOLLOWING


async def test_a_topic_that_was_deleted_without_a_word_makes_way_for_the_next(member: Member, tmp_path: Path) -> None:
    """Its replica was moved away while this broker was not there to hear of it, so nobody told it of the deletion."""
    member.assign(replicas=[US], epoch=5)
    member.assign(1, epoch=5)
    produce_values(member.node, b"old")
    assert member.assign(replicas=[US], topic_id=ANOTHER_ID) is ErrorCode.NONE
    assert member.role() is Role.ALONE
    assert member.role(TopicPartition("t", 1)) is None
    assert values_of(fetch(member.node, 0)) == []
    produce_values(member.node, b"new")
    assert values_of(fetch(member.node, 0)) == [b"new"]
    kept, _ = (next(tmp_path.glob(f"t-{number}.*-stray")) for number in (0, 1))
    assert b"old" in (kept / "00000000000000000000.log").read_bytes()
    assert not (tmp_path / "t-1").exists()


async def test_a_log_waits_for_what_the_controller_says_of_it(tmp_path: Path) -> None:
    """After a start the records that are there are served again when the broker leads them again."""
    async with playing(tmp_path) as member:
        member.assign(replicas=[US])
        produce_values(member.node, b"kept")
    async with playing(tmp_path) as member:
        assert member.role() is None
        assert member.assign(replicas=[US], epoch=1) is ErrorCode.NONE
        assert values_of(fetch(member.node, 0)) == [b"kept"]


async def test_what_another_topic_of_that_name_left_is_set_aside(tmp_path: Path) -> None:
    """The topic was deleted and made again while the broker was away."""
    async with playing(tmp_path) as member:
        member.assign(replicas=[US])
        produce_values(member.node, b"of the first one")
    async with playing(tmp_path) as member:
        assert member.assign(replicas=[US], topic_id=ANOTHER_ID) is ErrorCode.NONE
        assert values_of(fetch(member.node, 0)) == []
        (stray,) = tmp_path.glob("t-0.*-stray")
        assert (stray / "00000000000000000000.log").stat().st_size


async def test_a_folder_that_nobody_assigned_is_deleted_as_well(tmp_path: Path) -> None:
    """Its topic was deleted while the broker was away: the controller says so at the start."""
    async with playing(tmp_path) as member:
        assert member.assign(replicas=[US]) is ErrorCode.NONE
    async with playing(tmp_path) as member:
        assert member.stop(epoch=-2, deletes=True) is ErrorCode.NONE
        assert not (tmp_path / "t-0").exists()


async def test_a_topics_settings_are_in_force_before_its_logs_are(tmp_path: Path) -> None:
    async with playing(tmp_path, min_insync_replicas="2") as member:
        member.entry.reading = Pending[None]()
        request = member.assignment()
        waiting = send(member.node, LEADER_AND_ISR, request, 7)
        assert isinstance(waiting, Pending)
        assert member.role() is None
        answers: list[Any] = []
        waiting.on_value = answers.append
        member.entry.reading.complete_with(None)
        (pieces,) = answers
        assert decode(LEADER_AND_ISR, pieces, 7).topics[0].partition_errors[0].error_code == ErrorCode.NONE
        assert member.node.services.replicas.partitions[T0].log.config.min_insync_replicas == 2


async def test_another_controller_speaks_while_settings_are_read(member: Member) -> None:
    """What the earlier one said is refused then, although it came first."""
    member.entry.reading = Pending[None]()
    waiting = send(member.node, LEADER_AND_ISR, member.assignment(), 7)
    answers: list[Any] = []
    waiting.on_value = answers.append
    assert member.stop(fence=(2, -1)) is ErrorCode.NONE
    member.entry.reading.complete_with(None)
    assert decode(LEADER_AND_ISR, answers[0], 7).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert member.role() is None


async def test_a_disk_that_refuses_a_new_log(member: Member, tmp_path: Path) -> None:
    (tmp_path / "t-0").write_bytes(b"no folder")
    assert member.assign() is ErrorCode.KAFKA_STORAGE_ERROR
    assert member.assign(1) is ErrorCode.NONE
    assert member.assign(epoch=1) is ErrorCode.KAFKA_STORAGE_ERROR


async def lose_committed_records(directory: Path) -> None:
    """Has a member lead t-0 with three records, of which a crash takes the last."""
    async with playing(directory) as member:
        member.assign(replicas=[US])
        produce_values(member.node, b"one", b"two", b"three")
    (directory / ".kafka_cleanshutdown").unlink()
    segment = directory / "t-0" / "00000000000000000000.log"
    segment.write_bytes(segment.read_bytes()[:-10])
    (directory / "recovery-point-offset-checkpoint").unlink()


async def test_the_last_replica_in_sync_leads_without_what_it_lost(tmp_path: Path) -> None:
    """Whether others have it is for the controller to find out."""
    await lose_committed_records(tmp_path)
    async with playing(tmp_path) as member:
        assert member.assign(replicas=[US], epoch=1) is ErrorCode.NONE
        assert values_of(fetch(member.node, 0)) == [b"one", b"two"]


async def test_what_was_lost_of_a_deleted_topic_keeps_nobody_from_leading_the_next(tmp_path: Path) -> None:
    await lose_committed_records(tmp_path)
    async with playing(tmp_path) as member:
        assert member.stop(epoch=-2, deletes=True) is ErrorCode.NONE
        assert member.assign(topic_id=ANOTHER_ID, replicas=[US, OTHER]) is ErrorCode.NONE


async def test_what_was_lost_of_another_topic_of_that_name_keeps_nobody_from_leading(tmp_path: Path) -> None:
    await lose_committed_records(tmp_path)
    async with playing(tmp_path) as member:
        assert member.assign(topic_id=ANOTHER_ID, replicas=[US, OTHER]) is ErrorCode.NONE


@pytest.mark.parametrize("is_loaded_late", [True, False])
async def test_who_lost_committed_records_does_not_lead_others_that_are_in_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_loaded_late: bool
) -> None:
    """They may have them, and lead instead; then it follows, and may lead again later."""
    await lose_committed_records(tmp_path)
    if is_loaded_late:
        monkeypatch.setattr("core.broker.partitions.lazy_logs.AT_ONCE_BYTES", 0)
    async with playing(tmp_path) as member:
        assert member.assign(replicas=[US, OTHER], epoch=1) is ErrorCode.KAFKA_STORAGE_ERROR
        assert member.role() in (None, Role.OFFLINE)
        assert member.assign(replicas=[US, OTHER], epoch=1) is ErrorCode.KAFKA_STORAGE_ERROR
        assert member.assign(replicas=[US, OTHER], leader=OTHER, epoch=2) is ErrorCode.NONE
        assert member.role() is Role.FOLLOWING
        assert member.assign(replicas=[US, OTHER], epoch=3) is ErrorCode.NONE
        assert member.role() is Role.LEADING


async def test_an_unclean_election_lets_a_replica_lead_that_lost_records(tmp_path: Path) -> None:
    await lose_committed_records(tmp_path)
    async with playing(tmp_path) as member:
        assert member.assign(replicas=[US, OTHER], epoch=1) is ErrorCode.KAFKA_STORAGE_ERROR
        assert member.assign(leader=NO_LEADER, replicas=[US, OTHER], epoch=2) is ErrorCode.KAFKA_STORAGE_ERROR
        assert member.assign(replicas=[US, OTHER], isr=[US], epoch=3, recovery=1) is ErrorCode.NONE
        assert values_of(fetch(member.node, 0)) == [b"one", b"two"]


async def test_a_loss_is_known_after_another_start(tmp_path: Path) -> None:
    """Nobody had it lead or follow meanwhile."""
    await lose_committed_records(tmp_path)
    async with playing(tmp_path):
        pass
    async with playing(tmp_path) as member:
        assert member.assign(replicas=[US, OTHER], epoch=1) is ErrorCode.KAFKA_STORAGE_ERROR


async def test_where_nobody_leads_it_says_what_it_has_once_that_is_on_the_disk(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller elects by it (core/cluster/controller/unclean_recovery.py)."""
    member.assign(replicas=[US], epoch=3)
    produce_values(member.node, b"one", b"two")
    log = member.node.services.log_manager.logs[T0]
    asked = ListOffsetsPartition(0, current_leader_epoch=3, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-2, topics=[ListOffsetsTopic(T0.topic, [asked])])

    def end() -> tuple[int, int, int]:
        (found,) = ask(member.node, LIST_OFFSETS, request, 7).topics[0].partitions
        return found.error_code, found.leader_epoch, found.offset

    assert (end(), log.recovery_point) == ((ErrorCode.NONE, 3, 2), 0)
    member.assign(leader=NO_LEADER, replicas=[US, OTHER], epoch=4)
    assert end()[0] == ErrorCode.FENCED_LEADER_EPOCH
    asked.current_leader_epoch = 4
    with monkeypatch.context() as patch:
        patch.setattr("core.broker.partitions.flusher.Flusher.flush", lambda self, log: None)  # it takes a while
        assert end()[0] == ErrorCode.REPLICA_NOT_AVAILABLE
    assert (end(), log.recovery_point) == ((ErrorCode.NONE, 3, 2), 2)


async def test_metrics_tell_what_is_led_and_what_lacks_replicas(tmp_path: Path) -> None:
    def gauges(member: Member) -> dict[str, float]:
        found = {metric.name: metric for metric in finish(broker_metrics(member.node))}
        names = ("leadercount", "underreplicatedpartitions", "underminisrpartitioncount")
        return {name: found[f"kafka_server_replicamanager_{name}"].samples[0].value for name in names} | {
            "controller": found["kafka_controller_kafkacontroller_activecontrollercount"].samples[0].value
        }

    async with playing(tmp_path, min_insync_replicas="2") as member:
        member.assign()
        member.assign(1, leader=OTHER)
        assert gauges(member) == {
            "leadercount": 1,
            "underreplicatedpartitions": 0,
            "underminisrpartitioncount": 0,
            "controller": 0,
        }
        member.assign(2, isr=[US])
        assert gauges(member) == {
            "leadercount": 2,
            "underreplicatedpartitions": 1,
            "underminisrpartitioncount": 1,
            "controller": 0,
        }


async def test_a_lone_brokers_directory_becomes_a_members_and_goes_back(tmp_path: Path) -> None:
    """Each life serves what is its own; the lone broker takes up what came in the cluster."""
    alone = open_broker(tmp_path, node_id=str(US))
    add_topic(alone, "own")
    produce_values(alone, b"its own", topic="own")
    alone.close()
    async with playing(tmp_path) as member:
        member.update()
        assert fetch(member.node, 0, "own").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        member.assign(replicas=[US], epoch=7)
        produce_values(member.node, b"the cluster's")
    async with playing(tmp_path) as member:
        member.assign(replicas=[US], epoch=8)
        produce_values(member.node, b"and more")
    for _ in range(2):
        alone = open_broker(tmp_path, node_id=str(US))
        assert values_of(fetch(alone, 0, "own")) == [b"its own"]
        assert values_of(fetch(alone, 0, "t")) == [b"the cluster's", b"and more"]
        alone.close()
    assert not list(tmp_path.glob("*-stray"))


async def test_a_controller_of_an_older_protocol_is_complained_of_once_unless_another_was_obeyed(
    member: Member, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        for _ in range(2):
            with pytest.raises(MalformedMessageError, match="of version 4, and plog knows 5 and later"):
                send(member.node, LEADER_AND_ISR, LeaderAndIsrRequest(OTHER, controller_epoch=1), 4)
        member.assign()
    assert caplog.text.count("set inter.broker.protocol.version of Kafka's brokers to 3.9") == 1


def test_a_lone_broker_knows_no_such_requests(broker: SteeredNode) -> None:
    for api in (LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA):
        with pytest.raises(MalformedMessageError, match="unknown API"):
            send(broker, api, api.request(), api.versions.last)
        assert api not in broker.services.served_apis


# --- its place


async def test_a_member_that_no_controller_has_spoken_to_has_nothing_to_hand_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    member = Member(tmp_path, FakeEntry())
    await member.membership.hand_over()  # without a try every 5 s
    await member.membership.close()
    member.node.close()
    assert "has not taken over" not in caplog.text
