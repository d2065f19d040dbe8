"""`plog consume --group`: as a member of a group on a server, and alone on a directory."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from core.client.net.kafka_client import KafkaClient
from core.client.write.transactional_producer import TransactionalProducer
from core.common.endpoint import parse_bootstrap
from core.common.topic_partition import TopicPartition
from tests.support.server import PLOG, QUICK_PLOG, Server, call_plog, complaints
from tests.support.waiting import wait_for_exit, wait_until

pytestmark = pytest.mark.longer

LINES = [b"line %d" % number for number in range(200)]


SETTINGS = (
    "offsets.topic.num.partitions=1",
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.heartbeat.interval.ms=100",
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data", *(option for setting in SETTINGS for option in ("--set", setting))) as server:
        call_plog("topic", "create", "t", "--partitions", "4", "--bootstrap-server", server.address)
        produce(["--bootstrap-server", server.address], LINES)
        yield server


def produce(where: list[str], lines: list[bytes]) -> None:
    for number in range(4):
        text = b"".join(line + b"\n" for line in lines[number::4])
        assert call_plog("produce", "t", "--partition", str(number), *where, stdin=text).returncode == 0


def lag(where: list[str], group: str = "g") -> int:
    rows = json.loads(call_plog("group", "describe", group, "--output", "json", *where).stdout)
    return sum(row["lag"] for row in rows)


def test_it_reads_on_where_it_stopped(server: Server) -> None:
    where = ["--bootstrap-server", server.address]
    first = call_plog("consume", "t", "--group", "g", "--max-messages", "77", *where).stdout.splitlines()
    assert len(first) == 77
    assert lag(where) == 100 - 77  # of the partitions that were begun
    rest = call_plog("consume", "t", "--group", "g", "--max-messages", "123", *where).stdout.splitlines()
    assert sorted(first + rest) == sorted(LINES)
    assert lag(where) == 0
    produce(where, [b"new"] * 4)
    assert call_plog("consume", "t", "--group", "g", "--max-messages", "4", *where).stdout == b"new\n" * 4


def test_where_a_new_group_begins(server: Server) -> None:
    where = ["--bootstrap-server", server.address]
    last = call_plog("consume", "t", "--group", "g", "--from", "-2", "--max-messages", "8", *where).stdout
    assert sorted(last.splitlines()) == sorted(LINES[-8:])
    again = call_plog("consume", "t", "--group", "g", "--from", "beginning", "--max-messages", "0", *where)
    assert (again.returncode, again.stdout) == (0, b"")
    assert lag(where) == 0


class Member:
    """A `plog consume` that goes on."""

    def __init__(self, server: Server, out: Path, *options: str, topics: Sequence[str] = ("t",)) -> None:
        self.out = out
        self._errors = out.with_name(f"{out.name}.errors")
        command = [*QUICK_PLOG, "consume", *topics, "--group", "g", "--bootstrap-server", server.address, *options]
        with out.open("wb") as stdout, self._errors.open("wb") as stderr:
            self._process = subprocess.Popen(command, stdout=stdout, stderr=stderr)

    def lines(self) -> list[bytes]:
        return self.out.read_bytes().splitlines()

    def told(self) -> bytes:
        return self._errors.read_bytes()

    def stop(self, *, may_talk: bool = False) -> int:
        self._process.send_signal(signal.SIGINT)
        wait_for_exit(self._process)
        assert may_talk or complaints(self.told()) == []
        return self._process.returncode

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def members_of(server: Server) -> list[str]:
    where = ["--bootstrap-server", server.address]
    done = call_plog("group", "describe", "g", "--members", "--output", "json", *where)
    return [",".join(row["partitions"]) for row in json.loads(done.stdout or b"[]")]


def shares(server: Server) -> list[int]:
    """How many partitions each member has, in order of that."""
    return sorted(len(text.split(",")) if text else 0 for text in members_of(server))


def test_an_instance_id_that_another_member_has(server: Server, tmp_path: Path) -> None:
    """It was called fenced: the word for a member that was let in before."""
    named = ["--group-instance-id", "worker-1"]
    first = Member(server, tmp_path / "first", "--follow", *named)
    wait_until(lambda: len(first.lines()) == len(LINES))
    done = call_plog("consume", "t", "--group", "g", *named, "--bootstrap-server", server.address)
    assert done.returncode == 1
    assert b"error: UNRELEASED_INSTANCE_ID: Static member " in done.stderr
    assert b"plog group remove-members GROUP --instance ID removes one that is dead" in done.stderr
    assert first.stop() == 130


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_members_share_and_take_over(server: Server, tmp_path: Path, protocol: str) -> None:
    where = ["--bootstrap-server", server.address]
    options = ["--group-protocol", protocol]
    first = Member(server, tmp_path / "first", *options)
    wait_until(lambda: len(first.lines()) == len(LINES))
    second = Member(server, tmp_path / "second", *options)
    wait_until(lambda: shares(server) == [2, 2])
    produce(where, [b"shared %d" % n for n in range(100)])
    wait_until(lambda: len(first.lines()) + len(second.lines()) == len(LINES) + 100)
    assert len(second.lines()) == 50
    assert second.stop() == 130
    wait_until(lambda: shares(server) == [4])
    produce(where, [b"alone %d" % n for n in range(100)])
    wait_until(lambda: len(first.lines()) == len(LINES) + 150)
    assert first.stop() == 130
    assert lag(where) == 0
    read = first.lines() + second.lines()
    assert len(read) == len(set(read)) == len(LINES) + 200, "each once"


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_member_outlives_its_broker(server: Server, tmp_path: Path, protocol: str) -> None:
    server.pin(server.address)
    member = Member(server, tmp_path / "out", "--group-protocol", protocol)
    wait_until(lambda: len(member.lines()) == len(LINES), "the first lines")
    server.kill()
    server.start()
    produce(["--bootstrap-server", server.address], [b"new %d" % n for n in range(8)])
    wait_until(lambda: len(set(member.lines())) == len(LINES) + 8, "the new lines")
    assert member.stop(may_talk=True) == 130
    assert lag(["--bootstrap-server", server.address]) == 0


def test_a_member_begins_after_what_a_transaction_commits(server: Server, tmp_path: Path) -> None:
    """Of whoever read as the group before, and has not ended its transaction yet."""
    connect = partial(KafkaClient, parse_bootstrap(server.address))
    with contextlib.closing(TransactionalProducer(connect, "copier")) as producer:
        producer.send_offsets("g", {TopicPartition("t", number): 48 for number in range(4)})
        member = Member(server, tmp_path / "out")
        wait_until(lambda: b"has not ended; reading waits for that" in member.told())
        producer.commit()
    wait_until(lambda: len(member.lines()) >= 8)
    assert member.stop(may_talk=True) == 130
    assert sorted(member.lines()) == sorted(LINES[-8:])


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_static_members_keep_their_partitions(server: Server, tmp_path: Path, protocol: str) -> None:
    options = ["--group-protocol", protocol, "--group-instance-id"]
    members = [Member(server, tmp_path / name, *options, name) for name in "ab"]
    wait_until(lambda: shares(server) == [2, 2])
    before = sorted(members_of(server))
    assert members[1].stop() == 130
    assert sorted(members_of(server)) == before, "it is awaited"
    again = Member(server, tmp_path / "again", *options, "b")
    wait_until(lambda: sorted(members_of(server)) == before, "two members")
    produce(["--bootstrap-server", server.address], [b"new"] * 8)
    wait_until(lambda: again.lines().count(b"new") == 4, "its share")
    for member in (members[0], again):
        assert member.stop() == 130


def test_at_most_once(server: Server, tmp_path: Path) -> None:
    """What was committed before it was printed is not printed again, though its reader was killed meanwhile."""
    where = ["--bootstrap-server", server.address]
    command = [PLOG, "consume", "t", "--group", "g", "--commit", "before", *where]
    big = [b"%05d" % n + b"x" * 2000 for n in range(400)]  # more than a pipe holds
    produce(where, big)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        wait_until(lambda: {row["lag"] for row in json.loads(describe(where))} == {0}, "a commit")
        reader.kill()
        reader.stdout.close()
    more = call_plog("consume", "t", "--group", "g", "--timeout-ms", "500", *where)
    assert (more.returncode, more.stdout) == (0, b"")


def test_at_most_once_stops_exactly(server: Server) -> None:
    where = ["--bootstrap-server", server.address]
    first, second = (
        call_plog("consume", "t", "--group", "g", "--commit", "before", "--max-messages", "100", *where).stdout
        for _ in range(2)
    )
    assert sorted((first + second).splitlines()) == sorted(LINES)


def describe(where: list[str]) -> bytes:
    return call_plog("group", "describe", "g", "--output", "json", *where).stdout or b"[]"


def test_topics_by_pattern_and_those_that_come_later(server: Server, tmp_path: Path) -> None:
    member = Member(server, tmp_path / "out", "--regex", "t.*", topics=[])
    wait_until(lambda: len(member.lines()) == len(LINES), "the first lines")
    where = ["--bootstrap-server", server.address]
    call_plog("produce", "u", *where, stdin=b"not wanted\n")
    call_plog("produce", "t2", *where, stdin=b"wanted\n")
    wait_until(lambda: b"wanted" in member.lines(), "the new topic")
    assert member.stop() == 130
    assert b"not wanted" not in member.lines()


def test_after_a_kill_of_the_broker_it_reads_on(server: Server) -> None:
    where = ["--bootstrap-server", server.address]
    call_plog("consume", "t", "--group", "g", "--max-messages", "50", *where)
    server.kill()
    server.start()
    where = ["--bootstrap-server", server.address]
    rest = call_plog("consume", "t", "--group", "g", "--max-messages", "150", *where).stdout.splitlines()
    assert len(set(rest)) == 150
    assert lag(where) == 0


def test_alone_on_a_directory(tmp_path: Path) -> None:
    """Nobody can add to it meanwhile: it ends with what there is."""
    where = ["--data-dir", str(tmp_path)]
    call_plog("topic", "create", "t", "--partitions", "4", *where)
    assert call_plog("consume", "t", "--group", "g", *where).stdout == b""
    produce(where, LINES)
    first = call_plog("consume", "t", "--group", "g", "--max-messages", "77", *where).stdout.splitlines()
    rest = call_plog("consume", "t", "--group", "g", *where).stdout.splitlines()
    assert sorted(first + rest) == sorted(LINES)
    again = call_plog("consume", "t", "--group", "g", "--follow", *where)
    assert (again.stdout, b"note: --follow changes nothing here" in again.stderr) == (b"", True)
    assert lag(where) == 0
    with Server(tmp_path) as server:
        assert lag(["--bootstrap-server", server.address]) == 0


def test_members_that_a_killed_server_left_in_a_directory(server: Server, tmp_path: Path) -> None:
    member = Member(server, tmp_path / "out")
    wait_until(lambda: shares(server) == [4])
    server.kill()
    done = call_plog("consume", "t", "--group", "g", "--data-dir", str(server.data_dir))
    assert done.returncode == 1
    assert b"group g had members when its server stopped" in done.stderr
    member.kill()


def test_what_is_refused(server: Server) -> None:
    where = ["--bootstrap-server", server.address]
    for options in (["--partition", "0"], ["--until", "5"]):
        done = call_plog("consume", "t", "--group", "g", *options, *where)
        assert done.returncode == 2
        assert b"--group has neither --partition nor --until" in done.stderr
    done = call_plog("consume", "nope", "--group", "g", *where)
    assert done.returncode == 1
    assert b"no topic 'nope'" in done.stderr
