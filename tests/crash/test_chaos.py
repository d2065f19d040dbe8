"""Some rounds of chaos, as `scripts/torture --chaos N` does hundreds of; and that its checker sees what it must see."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from core.client.net.kafka_client import KafkaClient
from core.common.endpoint import parse_bootstrap
from core.common.error_code import ErrorCode
from core.protocol.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from tests.crash.chaos.chaos import Chaos
from tests.crash.chaos.checker import Found, FoundRecord, check
from tests.crash.chaos.faults import COMPILER, Faults, Kind
from tests.crash.chaos.ledger import COPIERS, COPIES, CUT, KEPT, KEYED, PLAIN, READERS, TELLS, Ledger, Transaction
from tests.crash.chaos.small_disk import may_mount
from tests.support.logs import make_batch
from tests.support.server import Server, call_plog
from tests.support.waiting import ANSWER_SECONDS, wait_until

ROUNDS = int(os.environ.get("PLOG_CHAOS", "3"))
SEED = int(os.environ.get("PLOG_CHAOS_SEED", "1"))


def test_nothing_is_lost_doubled_or_mixed_up_by_chaos(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, seed=SEED, has_disk=ROUNDS > 3 and may_mount(tmp_path))
    report = chaos.run(ROUNDS)
    sys.stdout.write(f"{report}\n")
    assert report.problems == []
    assert report.rounds == ROUNDS
    assert report.acknowledged > 20 * ROUNDS
    assert report.transactions > ROUNDS
    assert report.copies > ROUNDS


# --- the checker


def told() -> tuple[Ledger, Found]:
    """A little of everything, and nothing wrong."""
    ledger, found = Ledger(), Found()
    for number in range(4):
        name = f"p.1 {number}"
        for topic in (KEPT, CUT, KEYED):
            ledger._on_acknowledged(topic, 0, number, name, "key" if topic == KEYED else None)
            found.records[topic, 0].append(FoundRecord(number, "key", f"{name} .."))
        ledger._on_seen(KEPT, [(0, number, name)], "a")
        ledger._on_end(KEPT, 0, number + 1, number)
        if number < 3:
            found.records[COPIES, 0].append(FoundRecord(number * 2, None, f"0:{number} {name} .."))
            found.records[COPIES, 1].append(FoundRecord(number * 2, None, f"0:{number} {name} .."))
    del found.records[KEYED, 0][:3]  # the cleaner's
    ledger._on_cut_asked(0, 2)
    ledger._on_cut_done(0, 1)
    found.starts[CUT, 0] = 2
    del found.records[CUT, 0][:2]
    ledger._on_committed({"0": 3})
    found.offsets = {READERS: {0: 4}, COPIERS: {0: 3}}
    for number, outcome in enumerate(("committed", "aborted", None)):
        ledger.transactions[f"t {number}"] = Transaction({0: 1, 1: 2}, outcome)
        if outcome != "aborted":
            for partition in (0, 1, 1):
                records = found.records[TELLS, partition]
                records.append(FoundRecord(len(records), None, f"t {number} .."))
    ledger._on_seen(TELLS, [(1, 0, "t 0"), (1, 3, "t 2")], "a")
    ledger._on_acknowledged(KEPT, 1, None, "p.1 0")
    found.records[KEPT, 1].append(FoundRecord(0, None, "p.1 0 .."))
    ledger._on_refused(PLAIN, 0, "q.1 0", "KAFKA_STORAGE_ERROR")
    ledger._on_perhaps(PLAIN, 0, "q.1 1", "REQUEST_TIMED_OUT")
    found.records[PLAIN, 0].append(FoundRecord(0, None, "q.1 1 .."))
    return ledger, found


def swap(records: list[FoundRecord], one: int, other: int) -> None:
    first, second = records[one], records[other]
    records[one], records[other] = first._replace(value=second.value), second._replace(value=first.value)


WRONGS: dict[str, Callable[[Ledger, Found], object]] = {
    "kept-0: 1 are lost (acknowledged): p.1 3 at 3": lambda _, found: found.records[KEPT, 0].pop(),
    "kept-1: 1 are lost (acknowledged): p.1 0": lambda _, found: found.records[KEPT, 1].pop(),
    "kept-2: 1 are lost (acknowledged): p.1 0 at 0": lambda ledger, _: ledger._on_acknowledged(KEPT, 2, 0, "p.1 0"),
    "kept-0: 1 are lost (seen): p.1 3 at 3": lambda _, found: found.records[KEPT, 0].pop(),
    "kept-0: offsets have holes": lambda _, found: found.records[KEPT, 0].pop(1),
    "kept-0: 1 are there twice: p.1 3": lambda _, found: found.records[KEPT, 0].append(FoundRecord(4, None, "p.1 3 .")),
    "kept-0: 'p.1 1' at 2 comes after number 2": lambda _, found: swap(found.records[KEPT, 0], 1, 2),
    "kept-0: offsets don't rise": lambda _, found: found.records[KEPT, 0].reverse(),
    "kept-0: starts at 1": lambda _, found: found.starts.update({(KEPT, 0): 1}),
    "kept-0 offset 3 was given twice: 'p.1 3', 'p.2 0'": lambda ledger, _: ledger._on_seen(KEPT, [(0, 3, "p.2 0")]),
    "keyed-0: 4 are lost (acknowledged): p.1 0 at 0": lambda _, found: found.records[KEYED, 0].clear(),
    "cut-0: starts at 3, cut to 1 for certain and to 2 at most": lambda _, found: found.starts.update({(CUT, 0): 3}),
    "plain-0: 1 are there though they were refused: q.1 0": lambda _, found: found.records[PLAIN, 0].append(
        FoundRecord(1, None, "q.1 0 ..")
    ),
    "1 are aborted and visible: t 1": lambda _, found: found.records[TELLS, 0].append(FoundRecord(2, None, "t 1 .")),
    "1 are torn or doubled: t 0": lambda _, found: found.records[TELLS, 1].pop(0),
    "1 are torn or doubled: t 2": lambda _, found: found.records[TELLS, 1].append(FoundRecord(4, None, "t 2 ..")),
    "tells-0: 1 are lost (seen): t 1 at 5": lambda ledger, _: ledger._on_seen(TELLS, [(0, 5, "t 1")]),
    "kept-0: ends at 3, and 3 was acknowledged before": lambda ledger, _: ledger._on_end(KEPT, 0, 3, 3),
    "kept-0: a was shown 1 where 4 comes next": lambda ledger, _: ledger._on_seen(KEPT, [(0, 1, "p.1 1")], "a"),
    "kept-0: b was shown 1 where 0 comes next": lambda ledger, _: ledger._on_seen(KEPT, [(0, 1, "p.1 1")], "b"),
    "tells-1: a was shown 3 where 4 comes next": lambda ledger, _: ledger._on_seen(TELLS, [(1, 3, "t 2")], "a"),
    "1 are committed and lost: t 0": lambda _, found: [
        found.records[TELLS, p].__delitem__(slice(p + 1)) for p in (0, 1)
    ],
    "copies-1 of kept-0: 2 copies of 3; {'lost'": lambda _, found: found.records[COPIES, 1].pop(),
    "copies-0 of kept-0: 4 copies of 3; {'lost': [], 'doubled or too early'": lambda _, found: found.records[
        COPIES, 0
    ].append(FoundRecord(9, None, "0:0 p.1 0 ..")),
    "copies-0 of kept-0: 3 copies of 3; in another order": lambda _, found: swap(found.records[COPIES, 0], 0, 2),
    "readers of kept-0: committed 3, and 2 is there": lambda _, found: found.offsets[READERS].update({0: 2}),
    "1 of kept-0 are below the offset of readers, and were not seen: 2": lambda ledger, _: ledger.seen[KEPT, 0].pop(2),
}


@pytest.mark.first
def test_the_checker_names_what_is_wrong_and_that_alone() -> None:
    assert check(*told()) == []
    unnamed = {}
    for problem, spoil in WRONGS.items():
        ledger, found = told()
        spoil(ledger, found)
        if not any(said.startswith(problem) for said in check(ledger, found)):
            unnamed[problem] = check(ledger, found)
    assert not unnamed


# --- the faults


@pytest.fixture(params=["shim", "seam"])
def faults(request: pytest.FixtureRequest, tmp_path: Path) -> Faults:
    if request.param == "shim" and COMPILER is None:
        pytest.skip("there is no compiler")
    return Faults(tmp_path, tmp_path / "data", compiler=COMPILER if request.param == "shim" else None)


@pytest.fixture
def server(faults: Faults, tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data", command=faults.command, environment=faults.environment) as running:
        running.pin(running.address)
        yield running


def produce(server: Server, ledger: Ledger, number: int) -> ErrorCode:
    """Says it once, and notes the answer as the chaos's clients do."""
    client = KafkaClient(parse_bootstrap(server.address))
    name = f"p.1 {number}"
    data = PartitionProduceData(0, bytes(make_batch(f"{name} ..".encode()).buffer))
    request = ProduceRequest(None, -1, 5000, [TopicProduceData(PLAIN, client.topic(PLAIN).topic_id, [data])])
    answer = client.any_connection().call(PRODUCE, request).responses[0].partition_responses[0]
    client.close()
    if answer.error_code:
        ledger._on_refused(PLAIN, 0, name, ErrorCode.of(answer.error_code).name)
    else:
        ledger._on_acknowledged(PLAIN, 0, answer.base_offset, name)
    return ErrorCode.of(answer.error_code)


def read(server: Server) -> Found:
    found = Found()
    consumer = Consumer({"bootstrap.servers": server.address, "group.id": "x"})
    end = consumer.get_watermark_offsets(Position(PLAIN, 0), timeout=ANSWER_SECONDS)[1]
    consumer.assign([Position(PLAIN, 0, 0)])
    while len(found.records[PLAIN, 0]) < end:
        message = consumer.poll(ANSWER_SECONDS)
        assert message is not None
        found.records[PLAIN, 0].append(FoundRecord(message.offset(), None, message.value().decode()))
    consumer.close()
    return found


def test_a_disk_that_refuses_is_found_honest_and_one_that_lies_is_not(server: Server, faults: Faults) -> None:
    """What is acknowledged before it is written is lost by a kill: the checker must see it."""
    assert call_plog("topic", "create", PLAIN, "--bootstrap-server", server.address).returncode == 0
    ledger = Ledger()
    assert produce(server, ledger, 0) is ErrorCode.NONE
    faults.fail(Kind.WRITE, errno.EIO, match="/plain-")
    assert produce(server, ledger, 1) is ErrorCode.KAFKA_STORAGE_ERROR
    faults.fail(Kind.SHORT, errno.EIO, match="/plain-")
    assert produce(server, ledger, 2) is ErrorCode.NONE
    assert faults.injected > 1
    faults.heal()
    server.kill()
    server.start()
    assert check(ledger, read(server)) == []
    faults.fail(Kind.LOSE, 0, match="/plain-")
    assert produce(server, ledger, 3) is ErrorCode.NONE
    faults.heal()
    server.kill()
    server.start()
    assert check(ledger, read(server)) == ["plain-0: 1 are lost (acknowledged): p.1 3 at 2"]


@pytest.mark.skipif(COMPILER is None, reason="there is no compiler")
@pytest.mark.parametrize("step_s", [-3600, 3600])
def test_housekeeping_goes_on_while_the_wall_clock_steps(step_s: int, tmp_path: Path) -> None:
    faults = Faults(tmp_path, tmp_path / "data")
    settings = ("--set", "log.retention.check.interval.ms=50")
    with Server(tmp_path / "data", *settings, environment=faults.environment) as server:
        options = ("--config", "internal.segment.bytes=2000", "--config", "retention.bytes=2000")
        call_plog("topic", "create", PLAIN, *options, "--bootstrap-server", server.address)
        faults.step_clock(step_s)
        for number in range(60):
            assert produce(server, Ledger(), number) is ErrorCode.NONE
        consumer = Consumer({"bootstrap.servers": server.address, "group.id": "x"})
        wait_until(
            lambda: consumer.get_watermark_offsets(Position(PLAIN, 0), timeout=ANSWER_SECONDS)[0],
            "segments are deleted",
        )
        consumer.close()
        hours = {time.strftime("%Y-%m-%d %H", time.localtime(time.time() + step_s + near_s)) for near_s in (-60, 0)}
        assert any(f"\n{hour}:" in server.log.read_text() for hour in hours), "its clock did not step"
