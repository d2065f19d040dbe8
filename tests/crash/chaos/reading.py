"""Reads what is there in the end, by librdkafka, and what `plog verify` finds in a directory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.crash.chaos.checker import Found, FoundRecord
from tests.crash.chaos.ledger import COPIERS, READERS, TOPICS
from tests.support.server import call_plog
from tests.support.waiting import ANSWER_SECONDS, machine_seconds

_STABLE_S = 90
_POLL_SECONDS = 0.05


def read_all(address: str, on_problem: Callable[[str], None]) -> Found:
    """Once no transaction is open any more; `on_problem` is told where that is never so, or something can't be read."""
    found = Found()
    options = {"bootstrap.servers": address, "group.id": "checker", "enable.auto.commit": False,
               "enable.partition.eof": True, "auto.offset.reset": "earliest"}  # fmt: skip
    committed = Consumer({**options, "isolation.level": "read_committed"})
    uncommitted = Consumer({**options, "isolation.level": "read_uncommitted"})
    known = committed.list_topics(timeout=ANSWER_SECONDS).topics
    places = [(topic, partition) for topic in TOPICS for partition in known[topic].partitions]
    for topic, partition in places:
        where = TopicPartition(topic, partition)
        deadline = machine_seconds() + _STABLE_S
        while (ends := committed.get_watermark_offsets(where)) != uncommitted.get_watermark_offsets(where):
            if machine_seconds() > deadline:
                on_problem(f"the last stable offset of {topic}-{partition} is stuck at {ends}")
                break
            time.sleep(_POLL_SECONDS)
        found.starts[topic, partition] = ends[0]
        found.records[topic, partition] = []
    _read(committed, found, on_problem)
    for where, records in found.records.items():  # retention goes on meanwhile
        start = found.starts[where] = committed.get_watermark_offsets(TopicPartition(*where))[0]
        found.records[where] = [record for record in records if record.offset >= start]
    committed.close()
    uncommitted.close()
    admin = AdminClient({"bootstrap.servers": address})
    for group in (READERS, COPIERS):
        asked = [ConsumerGroupTopicPartitions(group)]
        positions = admin.list_consumer_group_offsets(asked)[group].result().topic_partitions
        found.offsets[group] = {position.partition: position.offset for position in positions}
    return found


def _read(consumer: Consumer, found: Found, on_problem: Callable[[str], None]) -> None:
    """All partitions to their ends."""
    consumer.assign([TopicPartition(*where, start) for where, start in found.starts.items()])
    left = set(found.starts)
    while left:
        message = consumer.poll(ANSWER_SECONDS)
        error = message and message.error()
        if message is None or (error and error.code() != KafkaError._PARTITION_EOF):
            on_problem(f"{sorted(left)} can't be read on: {error}")
            return
        where = message.topic(), message.partition()
        if error:
            left.discard(where)
        else:
            key = message.key() and message.key().decode()
            found.records[where].append(FoundRecord(message.offset(), key, message.value().decode()))


def _is_left_by_a_kill(found: dict[str, Any]) -> bool:
    """A batch that is half written, or an abort marker whose entry in the index was to be written next, by an append or
    by a start that makes the index again.
    """
    is_unlisted = found["code"] == "transaction-index-mismatch" and found["message"].startswith("no entry for")
    return found["code"] == "torn-tail" or is_unlisted


def find_unsound(
    directory: Path, *, was_killed: bool = False, may_be: Callable[[dict[str, Any]], bool] = lambda _: False
) -> str | None:
    """What `plog verify` finds wrong. What a kill leaves is no loss, and the start mends it."""
    done = call_plog("verify", "--output", "ndjson", str(directory))
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [found for found in findings if not may_be(found)]
    if was_killed:
        wrong = [found for found in wrong if found["severity"] == "error" and not _is_left_by_a_kill(found)]
    if wrong or (done.returncode and not findings):
        return f"ends with {done.returncode}: {wrong[:5]} {done.stderr.decode()[-500:]}"
    return None
