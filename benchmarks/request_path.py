"""Where the time of a request goes, from the bytes received to those sent: a profile by stages.

    .venv/bin/python -m benchmarks.request_path [--rounds 7] [--requests 2000] [--no-full-memory]

One process: a broker, a connection of it on a socket pair, and requests that were made before. A stopwatch round each
stage's functions gives it the time that is not another stage's; what reading the clock costs is measured and taken off.
The event loop round it (epoll, calling back) is not in it. The machine's memory is full (`FullMemory`) unless an option
says no. Medians of the rounds, in microseconds of the clock.
"""

from __future__ import annotations

import os
import socket
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

from benchmarks.options import add_full_memory, option_parser
from benchmarks.peers import memory_of, scratch_folder
from core.broker.broker_server import BrokerServer
from core.broker.config.broker_config import BrokerConfig
from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.requests import request_dispatcher
from core.broker.requests.client_session import Sessions
from core.broker.requests.fair_scheduler import FairScheduler
from core.broker.requests.handlers import fetch, produce
from core.broker.requests.handlers.fetch import DelayedFetch
from core.broker.requests.handlers.produce import ProduceFastPath, RememberedRequest
from core.broker.serving import connection as connection_module
from core.broker.serving.connection import Connection
from core.broker.serving.connections_memory import ConnectionsMemory
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.cluster.image.broker_metadata import NewTopic
from core.cluster.partition.partition import Partition
from core.files.file_records import FileRecords
from core.log import partition_log
from core.log.log_segment import LogSegment
from core.log.partition_log import PartitionLog
from core.log.producer_state_manager import ProducerStateManager
from core.protocol.frame import Endpoint, encode_request
from core.protocol.schema.fetch import FETCH
from core.protocol.schema.produce import PRODUCE
from core.records.record import Record
from core.records.record_batch_builder import batch_of
from core.security.principal import ANONYMOUS
from tests.support.broker import PRODUCE_BY_NAME, fetch_request, produce_request

REST = "connection and dispatcher"

STAGES: list[tuple[Any, str, str]] = [
    (Connection, "_on_readable", REST),
    (request_dispatcher, "read_request_start", "request decoded"),
    (Endpoint, "decode_request", "request decoded"),
    (ProduceFastPath, "find", "recognized by its bytes (produce_memory)"),
    (produce, "handle_remembered", "handler"),
    (fetch, "handle", "handler"),
    (produce, "read_one_batch", "batch header read"),
    (partition_log, "validate_header", "batch validated (CRC32C)"),
    (ProducerStateManager, "is_in_order", "producer's sequence, state"),
    (ProducerStateManager, "update", "producer's sequence, state"),
    (Partition, "append", "log append"),
    (PartitionLog, "append_as_leader", "log append"),
    (LogSegment, "append", "segment, indexes"),
    (FileRecords, "append", "write to the file"),
    (ReplicaManager, "notify", "readers told"),
    (DelayedFetch, "read", "partitions read"),
    (PartitionLog, "read", "offset found in the log"),
    (Endpoint, "encode_response", "answer encoded"),
    (RememberedRequest, "answer", "answer encoded"),
]


class Stopwatch:
    """Time by stage, without that of the stages that it calls."""

    def __init__(self) -> None:
        self.spent_ns: dict[str, float] = defaultdict(float)
        self._inner_ns: list[float] = []
        self._own_cost_ns = self._callers_cost_ns = 0.0
        self._calibrate()

    def wrap(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        inner_ns, spent_ns = self._inner_ns, self.spent_ns

        def timed(*arguments: Any, **options: Any) -> Any:
            inner_ns.append(0.0)
            started = perf_counter_ns()
            try:
                return function(*arguments, **options)
            finally:
                took = perf_counter_ns() - started
                spent_ns[stage] += took - inner_ns.pop() - self._own_cost_ns
                if inner_ns:
                    inner_ns[-1] += took + self._callers_cost_ns

        return timed

    def _calibrate(self) -> None:
        """What a call that does nothing seems to cost itself, and who calls it."""
        count = 100_000
        nothing = self.wrap("nothing", lambda: None)

        def outside() -> None:
            for _ in range(count):
                nothing()

        def empty() -> None:
            for _ in range(count):
                pass

        self.wrap("outside", outside)()
        self.wrap("empty", empty)()
        self._own_cost_ns = self.spent_ns["nothing"] / count
        self._callers_cost_ns = (self.spent_ns["outside"] - self.spent_ns["empty"]) / count
        self.spent_ns.clear()


@contextmanager
def stages_timed(watch: Stopwatch) -> Iterator[None]:
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in STAGES]
    served = request_dispatcher._SERVED[FETCH.key]
    sendfile = os.sendfile
    for owner, name, stage in STAGES:
        setattr(owner, name, watch.wrap(stage, getattr(owner, name)))
    request_dispatcher._SERVED[FETCH.key] = replace(served, handle=fetch.handle)
    connection_module.os.sendfile = watch.wrap("sent", os.sendfile)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)
        request_dispatcher._SERVED[FETCH.key] = served
        connection_module.os.sendfile = sendfile  # type: ignore[attr-defined]


class NoLoop:
    """The connection is told by hand that it may read."""

    def add_reader(self, *_: object) -> None: ...
    def remove_reader(self, *_: object) -> None: ...


def produce_frames(topic: str, size: int, count: int) -> list[bytearray]:
    """Each with a batch of one record, of an idempotent producer."""
    frames = []
    for number in range(count):
        record = Record(0, 1_700_000_000_000, None, os.urandom(size))
        batch = batch_of([record], producer_id=7, producer_epoch=0, base_sequence=number)
        frames.append(encode_request(PRODUCE, PRODUCE_BY_NAME, number, "profile", produce_request(batch, topic)))
    return frames


def fetch_frames(topic: str, count: int) -> list[bytearray]:
    frames = []
    for number in range(count):
        request = fetch_request(number, topic, partition_max_bytes=16384, max_wait_ms=500, max_bytes=16384)
        frames.append(encode_request(FETCH, PRODUCE_BY_NAME, number, "profile", request))
    return frames


class Bench:
    """A broker, and its connection with one client."""

    def __init__(self, directory: Path, watch: Stopwatch) -> None:
        self.broker = BrokerServer(directory, BrokerConfig.parse({"log.retention.ms": "-1"}))
        listener = socket.create_server(("127.0.0.1", 0))
        self._client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        listener.close()
        self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        timed: Any = SimpleNamespace(
            fileno=server.fileno, getsockname=server.getsockname, getpeername=server.getpeername, close=server.close,
            recv_into=watch.wrap("received", server.recv_into), send=watch.wrap("sent", server.send),
            sendmsg=watch.wrap("sent", server.sendmsg),
        )  # fmt: skip
        loop: Any = NoLoop()
        session = Sessions(None).find(ANONYMOUS, "PLAINTEXT", "127.0.0.1", "127.0.0.1")
        self._connection = Connection(
            loop=loop,
            sock=timed,
            buffers=ReceiveBuffers(),
            turns=FairScheduler(loop),
            memory=ConnectionsMemory(self.broker.services.config.queued_max_request_bytes),
            max_request_bytes=100 << 20,
            on_close=lambda _: None,
            on_unreadable=lambda *_: None,
            listener="PLAINTEXT",
            greet=lambda connection: connection.admit(session, self.broker.dispatcher, 100 << 20),
        )

    def send(self, frames: list[bytearray]) -> float:
        """Microseconds that the broker took for each."""
        took = 0
        for frame in frames:
            self._client.sendall(frame)
            started = perf_counter_ns()
            self._connection._on_readable()
            took += perf_counter_ns() - started
            size = int.from_bytes(self._client.recv(4, socket.MSG_WAITALL), "big")
            self._client.recv(size, socket.MSG_WAITALL)
        return took / len(frames) / 1000


def main() -> None:
    parser = option_parser(__doc__, rounds=7, requests=2000)
    add_full_memory(parser, default=True)
    options = parser.parse_args()
    count = options.requests
    watch = Stopwatch()
    figures: dict[tuple[str, str], list[float]] = defaultdict(list)
    kinds = {"produce 100 B": 100, "produce 16 KB": 16_000}
    with scratch_folder() as temporary, memory_of(temporary, is_full=options.full_memory):
        bench = Bench(temporary / "data", watch)
        for round_ in range(options.rounds + 1):
            for kind, size in kinds.items():
                topic = f"{size}-{round_}"
                for name in (topic, f"{topic}-plain"):
                    bench.broker.services.topics.create(NewTopic(name, 1))
                plain = bench.send(produce_frames(f"{topic}-plain", size, count))
                plain_fetch = bench.send(fetch_frames(f"{topic}-plain", count))
                for what, frames, whole in (
                    (kind, produce_frames(topic, size, count), plain),
                    (f"fetch of {size} B batches", fetch_frames(topic, count), plain_fetch),
                ):
                    watch.spent_ns.clear()
                    with stages_timed(watch):
                        bench.broker.dispatcher._routes.clear()
                        bench.send(frames)
                    bench.broker.dispatcher._routes.clear()
                    if round_ > 0:  # the first is for the caches
                        figures[what, "all, without a stopwatch"].append(whole)
                        for stage, spent_ns in watch.spent_ns.items():
                            figures[what, stage].append(spent_ns / count / 1000)
        bench.broker.close()
    columns = list(dict.fromkeys(what for what, _ in figures))
    stages = list(dict.fromkeys(stage for _, stage in figures))
    missing = {stage for _, _, stage in STAGES} - set(stages)
    assert not missing, f"no request goes through {missing}: the code has changed"
    print(f"| stage | {' | '.join(columns)} |")
    print(f"|---|{'---|' * len(columns)}")
    for stage in [*stages[1:], stages[0]]:
        cells = [f"{statistics.median(found):.1f}" if (found := figures[c, stage]) else "" for c in columns]
        print(f"| {stage} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
