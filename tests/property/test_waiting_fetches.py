"""A fetch that waits counts what it would get as records come; held against asking for everything again.

After each step, whoever still waits would not have been answered at once had it asked now, and whoever was answered
would have been. A fetch of a session waits as the whole request does that it stands for, and is told of its answer what
its client did not know.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from core.common.errors import AccessError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from core.protocol.schema.topic_changes import DELETE_RECORDS
from core.records.record_batch import RecordBatch
from tests.support.broker import (
    PRODUCE_BY_NAME,
    Background,
    SteeredNode,
    Timers,
    add_topic,
    ask,
    decode,
    delete_topic,
    open_broker,
    send,
)
from tests.support.for_each import for_each
from tests.support.logs import NOW, make_batch, make_marker
from tests.support.manual_clock import ManualClock
from tests.support.requests import deletion_of

TOPICS = {"plain": 3, "flushed": 2, "small": 2}
PARTITIONS = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]
STEPS, MOST_WAITING = 60, 5
SEEDS = int(os.environ.get("PLOG_FETCH_CASES", "15"))


class Session:
    """What its client knows: the partitions that it wants, in the order in which they are read, and what it was told of
    each.
    """

    def __init__(self) -> None:
        self.id = self.epoch = 0
        self.wanted: dict[tuple[str, int], FetchPartition] = {}
        self._told: dict[tuple[str, int], tuple[int, int]] = {}

    def update(self, request: FetchRequest) -> None:
        for topic in request.topics:
            self.wanted.update({(topic.topic, wanted.partition): wanted for wanted in topic.partitions})
        for forgotten in request.forgotten_topics_data:
            for number in forgotten.partitions:
                del self.wanted[forgotten.topic, number]
                self._told.pop((forgotten.topic, number), None)

    def news_of(self, answer: Any) -> dict[tuple[str, int], Any]:
        """The partitions in it of which the client does not know all."""
        return {
            (topic.topic, data.partition_index): data
            for topic in answer.responses
            for data in topic.partitions
            if data.error_code
            or data.records
            or (data.high_watermark, data.log_start_offset) != self._told.get((topic.topic, data.partition_index))
        }

    def take(self, answer: Any) -> None:
        assert answer.error_code == 0
        news = self.news_of(answer)
        assert len(news) == sum(len(topic.partitions) for topic in answer.responses), "it knew the others"
        for key, data in news.items():
            self._told[key] = (-1 if data.error_code else data.high_watermark, data.log_start_offset)
            if data.records:
                self.wanted[key] = self.wanted.pop(key)
        assert answer.session_id == (self.id or answer.session_id) != 0
        self.id, self.epoch = answer.session_id, self.epoch + 1


class Waiting:
    """A fetch, and its answer once there is one; `whole` is what it stands for if it is of a session."""

    def __init__(
        self, broker: SteeredNode, request: FetchRequest, whole: FetchRequest, session: Session | None = None
    ) -> None:
        self.whole = whole
        self.session = session
        self.answer: Any = None
        answer = send(broker, FETCH, request, PRODUCE_BY_NAME)
        self.pending = answer if isinstance(answer, Pending) else None
        if self.pending is not None:
            self.pending.on_value = self._keep
        else:
            self._keep(answer)

    def _keep(self, pieces: Any) -> None:
        self.answer = decode(FETCH, pieces, PRODUCE_BY_NAME)


def is_enough(request: FetchRequest, answer: Any) -> bool:
    size = 0
    for topic in answer.responses:
        for data in topic.partitions:
            if data.error_code or data.diverging_epoch.epoch >= 0:
                return True
            size += len(bytes(data.records))
    return size >= min(request.min_bytes, request.max_bytes) or not answer.responses


class World:
    def __init__(self, directory: Path, random: Random) -> None:
        self.random = random
        self.clock = ManualClock(NOW)
        self.broker = open_broker(directory, self.clock, log_retention_ms="-1")
        self.disk = Background()
        self.broker.runtime.use(run_flush=self.disk)
        self.broker.runtime.use(schedule=Timers())
        add_topic(self.broker, "plain", TOPICS["plain"])
        add_topic(self.broker, "flushed", TOPICS["flushed"], plog_visible_after_flush="true")
        add_topic(self.broker, "small", TOPICS["small"], internal_segment_bytes="1200", retention_bytes="1000")
        self.sequences: dict[tuple[str, int, int], int] = {}
        self.open: set[tuple[str, int, int]] = set()
        self.waiting: list[Waiting] = []
        self.sessions: list[Session] = []  # whose clients wait for nothing

    # --- what clients wait for

    def fetch(self) -> None:
        if len(self.waiting) == MOST_WAITING:
            return
        request = self.request()
        fresh = self.of_session(request) if request.topics and self.random.random() < 0.5 else None
        fresh = fresh or Waiting(self.broker, request, request)
        plain = self.plain_answer(fresh.whole)
        assert is_enough(fresh.whole, plain) == (fresh.answer is not None)
        if fresh.answer is None:
            self.waiting.append(fresh)
            return
        if fresh.session is not None:
            told = [(topic, number) for topic, number, *_ in _content(fresh.answer)]
            assert told == list(fresh.session.news_of(plain)), "all that it did not know"
        self.take(fresh)

    def of_session(self, request: FetchRequest) -> Waiting:
        """The request in a session that goes on, or begins with it."""
        random = self.random
        goes_on = self.sessions and random.random() < 0.7
        session = self.sessions.pop(random.randrange(len(self.sessions))) if goes_on else Session()
        if session.id:
            if random.random() < 0.6:
                request.topics = request.topics[:1]
            named = {(topic.topic, wanted.partition) for topic in request.topics for wanted in topic.partitions}
            request.forgotten_topics_data = [
                ForgottenTopic(topic, partitions=[number])
                for topic, number in session.wanted
                if (topic, number) not in named and random.random() < 0.2
            ]
        request.session_id, request.session_epoch = session.id, session.epoch
        session.update(request)
        whole = FetchRequest(
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            isolation_level=request.isolation_level,
            topics=[FetchTopic(topic, partitions=[wanted]) for (topic, _), wanted in session.wanted.items()],
        )
        return Waiting(self.broker, request, whole, session)

    def take(self, fetch: Waiting) -> None:
        """The client gets its answer."""
        expected = _content(self.plain_answer(fetch.whole))
        if fetch.session is None:
            assert _content(fetch.answer) == expected
        else:
            assert _with_records_or_error(_content(fetch.answer)) == _with_records_or_error(expected)
            fetch.session.take(fetch.answer)
            self.sessions.append(fetch.session)

    def request(self) -> FetchRequest:
        random = self.random
        wanted = random.sample(PARTITIONS, random.randint(1, len(PARTITIONS)))
        if random.random() < 0.1:
            wanted.append(random.choice(wanted))  # one twice
        topics = [
            FetchTopic(topic, partitions=[self.wanted(topic, number)])
            for topic, number in wanted
            if TopicPartition(topic, number) in self.broker.services.replicas.partitions
        ]
        return FetchRequest(
            max_wait_ms=500,
            min_bytes=random.choice((1, 100, 300, 1000, 3000, 100_000)),
            max_bytes=random.choice((1, 500, 2000, 1 << 20)),
            isolation_level=random.randint(0, 1),
            topics=topics,
        )

    def wanted(self, topic: str, number: int) -> FetchPartition:
        log = self.broker.services.replicas.find(topic, number).log
        offset = self.random.choice((log.log_start_offset, log.high_watermark, log.log_end_offset))
        limit = self.random.choice((1, 100, 150, 1000, 1 << 20))
        return FetchPartition(number, fetch_offset=offset, partition_max_bytes=limit)

    def plain_answer(self, request: FetchRequest) -> Any:
        at_once = FetchRequest(
            max_wait_ms=0,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            isolation_level=request.isolation_level,
            topics=request.topics,
        )
        return ask(self.broker, FETCH, at_once, PRODUCE_BY_NAME)

    # --- what happens

    def some_partition(self) -> Any:
        return self.random.choice(list(self.broker.services.replicas.partitions.values()) or [None])

    def append(self, batch: RecordBatch, partition: Any, *, from_client: bool = True) -> None:
        self.broker.services.replicas.append(partition, batch, required_acks=-1, from_client=from_client)
        self.broker.services.replicas.notify([partition.log.partition])

    def records(self) -> None:
        partition = self.some_partition()
        values = [b"x" * self.random.choice((1, 50, 300)) for _ in range(self.random.randint(1, 3))]
        self.append(make_batch(*values), partition)

    def transaction(self) -> None:
        """Begins or goes on."""
        partition = self.some_partition()
        key = (*partition.log.partition, self.random.randint(1, 2))
        sequence = self.sequences.get(key, 0)
        self.append(
            make_batch(b"t" * 80, producer_id=key[2], producer_epoch=0, base_sequence=sequence, is_transactional=True),
            partition,
        )
        self.sequences[key] = sequence + 1
        self.open.add(key)

    def end(self) -> None:
        if self.open:
            topic, number, producer = key = self.random.choice(sorted(self.open))
            self.open.discard(key)
            partition = self.broker.services.replicas.partitions.get(TopicPartition(topic, number))
            if partition is not None:
                self.append(make_marker(producer, is_commit=self.random.random() < 0.5), partition, from_client=False)

    def flush(self) -> None:
        if self.disk.waiting:
            self.disk.run()

    def delete_records(self) -> None:
        topic, number = self.some_partition().log.partition
        log = self.broker.services.replicas.find(topic, number).log
        offset = self.random.randint(log.log_start_offset, log.high_watermark)
        answer = ask(self.broker, DELETE_RECORDS, deletion_of(topic, number, offset))
        assert answer.topics[0].partitions[0].error_code == 0

    def retention(self) -> None:
        self.broker.housekeeping.apply_retention()

    def delete_topic(self) -> None:
        if self.random.random() < 0.1 and len(self.broker.services.image.topics) > 1:
            delete_topic(self.broker, self.random.choice(sorted(self.broker.services.image.topics)))

    def go_offline(self) -> None:
        if self.random.random() < 0.1 and len(self.broker.services.replicas.partitions) > 1:
            self.broker.services.replicas.take_offline(self.some_partition(), AccessError("gone", where="there"))

    def client_leaves(self) -> None:
        if self.waiting and self.random.random() < 0.3:
            gone = self.waiting.pop(self.random.randrange(len(self.waiting)))
            assert gone.pending is not None
            gone.pending.cancel()

    def step(self) -> None:
        steps: dict[Callable[[], None], int] = {
            self.fetch: 6,
            self.records: 10,
            self.transaction: 4,
            self.end: 3,
            self.flush: 4,
            self.delete_records: 1,
            self.retention: 1,
            self.delete_topic: 1,
            self.go_offline: 1,
            self.client_leaves: 1,
        }
        self.random.choices(list(steps), list(steps.values()))[0]()

    def judge(self) -> None:
        for fetch in self.waiting:
            assert is_enough(fetch.whole, self.plain_answer(fetch.whole)) == (fetch.answer is not None)
        for fetch in self.waiting:
            if fetch.answer is not None:
                self.take(fetch)
        self.waiting = [fetch for fetch in self.waiting if fetch.answer is None]


def _content(answer: Any) -> list[tuple[Any, ...]]:
    """Without high watermarks: one flush moves those of several partitions, and the first may be enough."""
    return [
        (topic.topic, data.partition_index, data.error_code, bytes(data.records or b""))
        for topic in answer.responses
        for data in topic.partitions
    ]


def _with_records_or_error(content: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*partition, code, records) for *partition, code, records in content if code or records]


@for_each("seed", range(SEEDS), first=5)
def test_counting_gives_what_asking_again_gives(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path / "data", Random(seed))
    for _ in range(STEPS):
        world.step()
        world.judge()
    world.broker.close()
