"""Topics with many partitions come and go in turns: others are served meanwhile, and what was begun is done."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.broker.requests import fair_scheduler, stepped_answer
from core.broker.requests.fair_scheduler import MOST_AT_WORK, FairScheduler
from core.broker.requests.handlers import metadata
from core.broker.serving.socket_server import SocketServer
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.filesystem import FileSystem
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import read_partition_metadata
from core.log import log_manager
from core.protocol.schema.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from core.protocol.schema.group_offsets import OFFSET_COMMIT
from core.protocol.schema.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from core.protocol.schema.topic_changes import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.support.broker import (
    Background,
    SteeredNode,
    add_topic,
    ask,
    delete_topic,
    open_broker,
    produce,
    produce_values,
)
from tests.support.logs import make_batch
from tests.support.requests import commit_of
from tests.unit.broker.serving.test_connection import connect, frame, is_served, read_frame
from tests.unit.broker.serving.test_work_in_turns import Asked, Loop

PARTITIONS = 20


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn is a step."""
    monkeypatch.setattr(stepped_answer, "TURN_SECONDS", 0)
    monkeypatch.setattr(fair_scheduler, "ROUND_SECONDS", 0)


@pytest.fixture
def loop(broker: SteeredNode) -> Loop:
    loop = Loop()
    broker.runtime.turns = FairScheduler(cast(asyncio.AbstractEventLoop, loop))
    return loop


def create(*names: str, partitions: int = PARTITIONS, **configs: str) -> CreateTopicsRequest:
    settings = [CreatableTopicConfig(name.replace("_", "."), value) for name, value in configs.items()]
    return CreateTopicsRequest([CreatableTopic(name, partitions, 1, configs=settings) for name in names])


def delete(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest([DeleteTopicState(name) for name in names])


def grow(name: str, partitions: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest([CreatePartitionsTopic(name, partitions, None)])


def folders(broker: SteeredNode, name: str = "t") -> list[str]:
    """What is called as a partition of the topic is."""
    return sorted(path.name for path in broker.directory.glob(f"{name}-*") if path.name[len(name) + 1 :].isdigit())


def all_folders(name: str = "t", partitions: int = PARTITIONS) -> list[str]:
    return sorted(f"{name}-{number}" for number in range(partitions))


@pytest.mark.parametrize(("api", "request_of"), [(CREATE_TOPICS, create), (DELETE_TOPICS, delete)])
async def test_others_are_served_meanwhile(
    server: SocketServer, broker: SteeredNode, api: Any, request_of: Any
) -> None:
    if api is DELETE_TOPICS:
        add_topic(broker, "t", 60)
    slow_reader, slow_writer = await connect(server)
    other = await connect(server)
    wanted = request_of("t", partitions=60) if api is CREATE_TOPICS else request_of("t")
    slow_writer.write(frame(api, 1, wanted, api.versions.last))
    answer = asyncio.create_task(read_frame(slow_reader))
    for number in range(5):
        assert await is_served(other, number)
    assert not answer.done()
    await answer
    assert len(folders(broker)) == (60 if api is CREATE_TOPICS else 0)


def test_who_asks_something_beside_large_topics_does_not_wait_for_them(
    broker: SteeredNode, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold no more memory for being at work, and take no place from those that do."""
    monkeypatch.setattr(metadata, "_MOST_AT_ONCE", PARTITIONS)
    large = [Asked(broker, CREATE_TOPICS, create(f"large{n}")) for n in range(MOST_AT_WORK + 1)]
    asked = Asked(broker, METADATA, MetadataRequest(None))
    small = Asked(broker, CREATE_TOPICS, create("small", partitions=2))
    gone = Asked(broker, DELETE_TOPICS, delete("small"))
    while asked.answer is None or small.answer is None or gone.answer is None:
        assert loop.step()
    assert [creation.answer for creation in large] == [None] * len(large)
    loop.run()
    assert all(creation.answer.topics[0].error_code == ErrorCode.NONE for creation in large)


def test_topics_that_may_not_grow_are_told_in_turns(broker: SteeredNode, loop: Loop) -> None:
    """However many a request names: nothing is written for them, yet each is looked up."""
    names = [f"none{number}" for number in range(50)]
    asked = Asked(
        broker, CREATE_PARTITIONS, CreatePartitionsRequest([CreatePartitionsTopic(n, 2, None) for n in names])
    )
    for _ in range(40):
        assert asked.answer is None
        assert loop.step()
    loop.run()
    assert [result.name for result in asked.answer.results] == names
    assert {result.error_code for result in asked.answer.results} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_all_topics_of_a_request_are_one_batch_of_metadata(broker: SteeredNode) -> None:
    log = broker.services.controller._log._log
    offset = log.log_end_offset
    ask(broker, CREATE_TOPICS, create(*(f"t{number}" for number in range(50)), partitions=2, retention_ms="1"))
    ask(broker, DELETE_TOPICS, delete(*(f"t{number}" for number in range(50))))
    batches = [b for s in log.segments.from_offset(offset) for b in s.records.iter_batches() if b.base_offset >= offset]
    assert [len(list(batch.records())) for batch in batches] == [50 * (1 + 1 + 2), 50]


def test_partitions_that_are_not_made_yet_have_no_leader(broker: SteeredNode, loop: Loop) -> None:
    asked = Asked(broker, CREATE_TOPICS, create("t"))
    for _ in range(5):
        loop.step()
    described = ask(broker, METADATA, MetadataRequest([MetadataRequestTopic(name="t")])).topics[0]
    codes = [partition.error_code for partition in described.partitions]
    made = codes.count(ErrorCode.NONE)
    assert 0 < made < PARTITIONS
    assert codes == [ErrorCode.NONE] * made + [ErrorCode.LEADER_NOT_AVAILABLE] * (PARTITIONS - made)
    assert produce(broker, make_batch(b"v"), "t", 0).error_code == ErrorCode.NONE
    assert produce(broker, make_batch(b"v"), "t", PARTITIONS - 1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert asked.answer is None
    loop.run()
    assert asked.answer.topics[0].error_code == ErrorCode.NONE
    assert produce(broker, make_batch(b"v"), "t", PARTITIONS - 1).error_code == ErrorCode.NONE


@pytest.mark.parametrize("who_ends", ["client", "broker"])
def test_what_was_begun_is_done(broker: SteeredNode, loop: Loop, who_ends: str) -> None:
    """A client that is gone, or a broker that is told to stop, leaves no half of a topic."""
    for request, api in ((create("t"), CREATE_TOPICS), (delete("gone"), DELETE_TOPICS)):
        add_topic(broker, "gone", PARTITIONS)
        asked = Asked(broker, api, request)
        assert isinstance(asked.pending, Pending)
        loop.step()
        asked.pending.cancel()
        if who_ends == "client":
            loop.run()
            assert not broker.services.stepped_answers.owed
        else:
            broker.close()
            broker = open_broker(broker.directory)
            assert broker.services.log_manager.had_clean_shutdown
            broker.runtime.turns = FairScheduler(cast(asyncio.AbstractEventLoop, loop))
        assert folders(broker) == all_folders()
        assert folders(broker, "gone") == ([] if api is DELETE_TOPICS else all_folders("gone"))
        assert not list(broker.directory.glob("*-stray"))
        if api is CREATE_TOPICS:
            delete_topic(broker, "gone")


def test_a_topic_that_is_deleted_while_it_is_made(broker: SteeredNode, loop: Loop) -> None:
    made = Asked(broker, CREATE_TOPICS, create("t"))
    loop.step()
    gone = Asked(broker, DELETE_TOPICS, delete("t"))
    loop.run()
    assert made.answer.topics[0].error_code == gone.answer.responses[0].error_code == ErrorCode.NONE
    assert folders(broker) == []
    assert not broker.services.replicas.partitions
    assert not broker.services.log_manager.logs


def test_a_topic_that_is_made_again_while_its_folders_go(broker: SteeredNode, loop: Loop) -> None:
    add_topic(broker, "t", PARTITIONS)
    for number in range(PARTITIONS):
        produce_values(broker, b"old", partition=number)
    gone = Asked(broker, DELETE_TOPICS, delete("t"))
    made = Asked(broker, CREATE_TOPICS, create("t"))
    loop.run()
    assert gone.answer.responses[0].error_code == made.answer.topics[0].error_code == ErrorCode.NONE
    topic_id = broker.services.image.topics["t"].topic_id
    for name in all_folders():
        assert read_partition_metadata(broker.directory / name) == topic_id
    assert [broker.services.replicas.find("t", number).log.log_end_offset for number in range(PARTITIONS)] == [
        0
    ] * PARTITIONS
    assert len(list(broker.directory.glob("*-delete"))) == PARTITIONS
    assert not list(broker.directory.glob("*-stray")), "what was deleted is not kept"


def test_a_setting_that_changes_while_the_topic_is_made(broker: SteeredNode, loop: Loop) -> None:
    Asked(broker, CREATE_TOPICS, create("t", retention_ms="5"))
    loop.step()
    broker.services.configs.set(2, "t", {"retention.ms": "7"})
    loop.run()
    found = [broker.services.replicas.find("t", number).log.config.retention_ms for number in range(PARTITIONS)]
    assert found == [7] * PARTITIONS


@pytest.mark.parametrize(
    ("key_type", "what_comes"), [(0, "nothing"), (0, "a commit"), (0, "the end"), (1, "nothing"), (1, "the end")]
)
def test_the_topic_of_a_coordinator_is_made_in_turns_and_those_who_look_for_it_wait(
    tmp_path: Path, loop: Loop, key_type: int, what_comes: str
) -> None:
    name = ["__consumer_offsets", "__transaction_state"][key_type]
    partitions = str(PARTITIONS)
    settings = {"offsets_topic_num_partitions": partitions, "transaction_state_log_num_partitions": partitions}
    broker = open_broker(tmp_path / "other", None, **settings)
    add_topic(broker, "t")
    broker.runtime.turns = FairScheduler(cast(asyncio.AbstractEventLoop, loop))
    asked = [Asked(broker, FIND_COORDINATOR, FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"]))]
    loop.step()
    asked.append(Asked(broker, FIND_COORDINATOR, FindCoordinatorRequest(key_type=key_type, coordinator_keys=["h"])))
    loop.step()
    assert 0 < len(folders(broker, name)) < PARTITIONS
    assert [one.answer for one in asked] == [None, None]
    if what_comes == "a commit":  # of a client that looks for no coordinator
        answer = ask(broker, OFFSET_COMMIT, commit_of("g", 5), 2)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    elif what_comes == "the end":
        broker.close()
        broker = open_broker(tmp_path / "other")
    else:
        loop.run()
        assert [one.answer.coordinators[0].error_code for one in asked] == [ErrorCode.NONE] * 2
    assert folders(broker, name) == all_folders(name)


def test_partitions_that_are_added_while_the_topic_is_made(broker: SteeredNode, loop: Loop) -> None:
    made = Asked(broker, CREATE_TOPICS, create("t"))
    loop.step()
    grown = Asked(broker, CREATE_PARTITIONS, grow("t", PARTITIONS + 5))
    loop.run()
    assert made.answer.topics[0].error_code == grown.answer.results[0].error_code == ErrorCode.NONE
    assert folders(broker) == all_folders(partitions=PARTITIONS + 5)
    assert len(broker.services.replicas.partitions) == PARTITIONS + 5


def test_checkpoints_are_written_once_a_topic(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    add_topic(broker, "t", PARTITIONS)
    for number in range(PARTITIONS):
        produce_values(broker, b"v", partition=number)
        broker.services.replicas.find("t", number).log.flush()
    broker.services.log_manager.checkpoints.write_recovery_points()
    broker.services.log_manager.checkpoints.write_high_watermarks()
    delete_topic(broker, "t")
    written: list[Path] = []
    write = log_manager.write_offset_checkpoint

    def count(path: Path, *rest: Any) -> None:
        written.append(path)
        write(path, *rest)

    monkeypatch.setattr(log_manager, "write_offset_checkpoint", count)
    add_topic(broker, "t", PARTITIONS)
    names = sorted(path.name for path in written)
    assert names == ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"]
    assert [broker.services.replicas.find("t", number).log.log_end_offset for number in range(PARTITIONS)] == [
        0
    ] * PARTITIONS


def test_a_disk_that_refuses_to_forget_what_it_knew(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old offset must not be taken for one of the new log: its partition waits for the next start."""
    add_topic(broker)
    produce_values(broker, b"v")
    broker.services.log_manager.checkpoints.write_high_watermarks()
    delete_topic(broker, "t")

    def refuse(path: Path, *_rest: Any) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(log_manager, "write_offset_checkpoint", refuse)
    add_topic(broker, "t", 2)
    assert list(broker.services.log_manager.offline) == [TopicPartition("t", number) for number in range(2)]
    monkeypatch.undo()
    broker.close()
    again = open_broker(broker.directory)
    assert [again.services.replicas.find("t", number).log.log_end_offset for number in range(2)] == [0, 0]


def test_a_topic_that_is_deleted_before_its_logs_are_made(broker: SteeredNode, loop: Loop) -> None:
    """It waits for the logs of another one of its request."""
    made = Asked(broker, CREATE_TOPICS, create("a", "t"))
    gone = Asked(broker, DELETE_TOPICS, delete("t"))
    loop.run()
    assert made.answer.topics[1].error_code == gone.answer.responses[0].error_code == ErrorCode.NONE
    assert folders(broker) == []
    assert {partition.topic for partition in broker.services.replicas.partitions} == {"a"}


@settings(
    max_examples=settings().max_examples // 4,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_topics_that_come_grow_and_go_at_once_are_as_their_metadata_say(data: st.DataObject) -> None:
    """Requests meet at any step of each other; a kill may come at any moment."""
    with TemporaryDirectory() as directory:
        broker, loop = open_broker(Path(directory)), Loop()
        broker.runtime.turns = FairScheduler(cast(asyncio.AbstractEventLoop, loop))
        names = st.lists(st.sampled_from("ab"), min_size=1, max_size=2, unique=True)
        for _ in range(data.draw(st.integers(1, 12))):
            match data.draw(st.sampled_from(["create", "grow", "delete"])):
                case "create":
                    Asked(broker, CREATE_TOPICS, create(*data.draw(names), partitions=data.draw(st.integers(1, 3))))
                case "grow":
                    name, partitions = data.draw(st.sampled_from("ab")), data.draw(st.integers(2, 5))
                    Asked(broker, CREATE_PARTITIONS, grow(name, partitions))
                case _:
                    Asked(broker, DELETE_TOPICS, delete(*data.draw(names)))
            for _ in range(data.draw(st.integers(0, 5))):
                loop.step()
        end = data.draw(st.sampled_from(["all is done", "a stop", "a kill"]))
        if end == "all is done":
            loop.run()
        if end != "a kill":
            broker.close()
            ensure_as_metadata_say(broker)
        else:
            broker._lock.release()
        again = open_broker(Path(directory))
        ensure_as_metadata_say(again)
        again.close()


def ensure_as_metadata_say(broker: SteeredNode) -> None:
    expected = {
        TopicPartition(topic.name, number): topic.topic_id
        for topic in broker.services.image.topics.values()
        for number in topic.partitions
    }
    assert {name: partition.topic_id for name, partition in broker.services.replicas.partitions.items()} == expected
    assert broker.services.log_manager.logs.keys() == expected.keys()
    found = {
        name: read_partition_metadata(path) for name, path in broker.services.log_manager.find_partitions().items()
    }
    assert found == expected or not expected, "without any topic, a start leaves folders alone"


def test_a_start_waits_for_no_folder_that_is_to_be_deleted(tmp_path: Path) -> None:
    """Nor does what else is done in the background wait for all of them."""
    broker = open_broker(tmp_path)
    add_topic(broker, "going", 50)
    delete_topic(broker, "going")
    broker.close()
    assert len(list(tmp_path.glob("*-delete"))) == 50
    again = open_broker(tmp_path)
    background = Background()
    again.runtime.use(run_in_background=background)
    again.begin_serving(Endpoint("127.0.0.1", 1))
    order = []
    again.runtime.run_in_background(lambda: order.append(len(list(tmp_path.glob("*-delete")))))
    assert len(list(tmp_path.glob("*-delete"))) == 50
    background.run_all()
    assert order == [30]
    assert not list(tmp_path.glob("*-delete"))


def test_a_deletion_holds_nobody_until_the_disk_has_the_new_names_of_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync of the directory waits for whatever else is written to the disk."""
    broker = open_broker(tmp_path)
    add_topic(broker, "going", 5)
    synced: list[Path] = []
    monkeypatch.setattr(FileSystem, "sync_directory", lambda _, path: synced.append(path))
    background = Background()
    broker.runtime.use(run_in_background=background)
    delete_topic(broker, "going")
    assert len(list(tmp_path.glob("*-delete"))) == 5
    assert tmp_path not in synced
    background.run_all()
    assert tmp_path in synced
