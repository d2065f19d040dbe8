"""`plog produce` without a TOPIC: each record goes to the topic that it names."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from core.client.net.kafka_client import KafkaClient, TopicInfo
from tests.cli.conftest import ok
from tests.support.server import call_plog

EVENTS = b'{"type":"order.created","id":1}\n{"type":"order.paid","id":2}\n{"type":"order.created","id":3}\n'


def test_a_field_names_the_topic_and_the_value_stays_whole(where: list[str], tmp_path: Path) -> None:
    (tmp_path / "events").write_bytes(EVENTS)
    options = ["--topic-field", "type", "--key-field", "id", "--report", "csv"]
    report = ok("produce", *options, str(tmp_path / "events"), *where).decode()
    assert list(csv.reader(report.splitlines())) == [
        ["topic", "partition", "records", "first_offset", "last_offset"],
        ["order.created", "0", "2", "0", "1"],
        ["order.paid", "0", "1", "0", "0"],
    ]
    created, paid = EVENTS.splitlines()[::2], EVENTS.splitlines()[1:2]
    assert ok("consume", "order.created", "--format", r"%s\n", *where).splitlines() == created
    assert ok("consume", "order.paid", "--format", r"%k %s\n", *where).splitlines() == [b"2 " + paid[0]]


def test_envelopes_of_several_topics_go_back_to_them(where: list[str], tmp_path: Path) -> None:
    """As recorded from several topics, and played into another cluster."""
    ok("topic", "create", "b", "--partitions", "3", *where)
    ok("produce", "a", *where, stdin=b"1\n2\n")
    ok("produce", "b", "--partition", "2", "--header", "h=x", *where, stdin=b"3\n\xff\n")
    recorded = ok("consume", "a", "b", "--format", "envelope", *where)
    there = ["--data-dir", str(tmp_path / "there")]
    ok("topic", "create", "b", "--partitions", "3", *there)
    ok("produce", "--format", "envelope", "--own-topics", *there, stdin=recorded)
    assert sorted(ok("consume", "a", "b", "--format", "envelope", *there).splitlines()) == sorted(recorded.splitlines())
    renamed = call_plog("produce", "c", "--format", "envelope", "--partitioner", "murmur2", *there, stdin=recorded)
    assert renamed.stderr.endswith(b"4 records written to c\n")


def test_a_transaction_holds_records_of_all_topics_or_none(where: list[str]) -> None:
    options = ["--topic-field", "type", "--transactional-id", "i"]
    broken = call_plog("produce", *options, *where, stdin=EVENTS + b"{}\n")
    assert (broken.returncode, broken.stdout) == (1, b"")
    assert b"line 4: field 'type' is missing or null, expected the name of a topic" in broken.stderr
    done = call_plog("produce", *options, *where, stdin=EVENTS)
    assert done.stderr == b"3 records written to 2 topics, committed as one transaction\n"
    read = ["--isolation", "read_committed", "--format", r"%s\n", *where]
    assert sorted(ok("consume", "order.created", "order.paid", *read).splitlines()) == sorted(EVENTS.splitlines())


def test_a_line_that_names_no_topic_is_the_last(where: list[str]) -> None:
    cases = {
        b'{"type":"../x"}': b"topic name '../x' is invalid",
        b'{"type":"a:1"}': b"topic name 'a:1' is invalid",
        b'{"type":"%s"}' % (b"x" * 250): b"topic name of 250 characters is invalid",
        b'{"type":""}': b"a topic name may not be empty",
        b'{"type":null}': b"field 'type' is missing or null",
        b'{"type":["a"]}': b"field 'type' is no text",
    }
    for line, problem in cases.items():
        lines = b'{"type":"first"}\n' + line + b'\n{"type":"never"}\n'
        done = call_plog("produce", "--topic-field", "type", *where, stdin=lines)
        assert done.returncode == 1
        assert b"line 2: " in done.stderr and problem in done.stderr, done.stderr
        assert b"1 record written to first before it, and none after it" in done.stderr
    assert ok("topic", "list", "--output", "csv", *where).decode().splitlines()[1:][0].startswith("first,")
    assert b"never" not in ok("topic", "list", *where)
    nameless = call_plog("produce", "--own-topics", "--format", "envelope", *where, stdin=b'{"value":"x"}\n')
    assert nameless.stderr.startswith(b"error: line 1: 'topic' is missing or null, expected the name of a topic")


def test_unknown_topics_are_refused_with_no_create(where: list[str]) -> None:
    ok("topic", "create", "order.created", *where)
    done = call_plog("produce", "--topic-field", "type", "--no-create", *where, stdin=EVENTS)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: line 2: no topic 'order.paid'; 1 record written to order.created before it")


def test_a_partition_that_one_topic_lacks(where: list[str]) -> None:
    ok("topic", "create", "wide", "--partitions", "8", *where)
    lines = [{"topic": "wide", "partition": 7, "value": "a"}, {"topic": "narrow", "partition": 7, "value": "b"}]
    envelopes = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    done = call_plog("produce", "--own-topics", "--format", "envelope", *where, stdin=envelopes)
    assert done.returncode == 1
    assert b"line 2: partition 7, topic narrow has only partition 0 (--partitioner NAME" in done.stderr
    ok("produce", "--own-topics", "--format", "envelope", "--partitioner", "murmur2", *where, stdin=envelopes)


def test_created_topics_are_named_up_to_ten(tmp_path: Path) -> None:
    lines = b"".join(b'{"t":"t%d"}\n' % number for number in range(12))
    done = call_plog("produce", "--topic-field", "t", "--data-dir", str(tmp_path), stdin=lines)
    said = done.stderr.decode().splitlines()
    assert [line.split(" ")[2] for line in said[:10]] == [f"t{number}" for number in range(10)]
    assert said[10:] == ["created 12 topics in all", "12 records written to 12 topics"]


def test_a_topic_that_is_typed_beside_the_option(where: list[str], tmp_path: Path) -> None:
    done = call_plog("produce", "orders", "--topic-field", "type", *where, stdin=EVENTS)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == [
        "error: --topic-field takes the topic of each record, and there is no file 'orders'",
        "hint: leave orders out, or --topic-field",
    ]
    none = call_plog("produce", *where, stdin=EVENTS)
    assert none.returncode == 2
    assert none.stderr.startswith(b"error: produce needs a topic\nhint: plog produce TOPIC, or --topic-field F")


def test_a_new_topic_costs_the_same_among_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each asked for all topics there are, and compared its name with theirs, for a hint that nobody saw."""
    place, asked = ["--data-dir", str(tmp_path / "data")], []
    refresh = KafkaClient.refresh

    def note(client: KafkaClient, topics: Iterable[str] | None = None, **options: bool) -> dict[str, TopicInfo]:
        asked.append(topics)
        return refresh(client, topics, **options)

    monkeypatch.setattr(KafkaClient, "refresh", note)
    ok("produce", "--topic-field", "type", *place, stdin=EVENTS)
    assert asked.count(None) == 0
    assert asked
    missing = call_plog("produce", "order.pay", "--no-create", *place, stdin=b"a\n")
    assert b"did you mean order.paid?" in missing.stderr
