"""What one client's request costs all the others, and what checking records costs.

    git worktree add /tmp/before COMMIT
    .venv/bin/python -m benchmarks.fairness [--before /tmp/before] [--rounds 5] [--records 8000000] [--partitions 1000]
        [--requests 20000]

- polls: CPU of a Produce of one record while 50 fetches wait for 1,000 partitions each
- records: a batch of 8 million records in 5 KB, looked up by time and produced to a compacted topic: CPU seconds, the
  longest that the broker did nothing else, and the memory of the process at its peak
- validation: CPU of a Produce request by default, and with `plog.validate.records`; `--requests` are made, and fewer of
  those with many records

Each round is a process of its own for each version, without sockets, in turns; medians, with the least and the most.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections import defaultdict
from pathlib import Path

from benchmarks.figures import spread
from benchmarks.options import option_parser
from benchmarks.peers import HERE, environment_of, scratch_folder
from core.records.compression import CompressionType
from core.records.record_batch_builder import build_batch

NOW = 1_700_000_000_000

_ROUND = r"""
import json, os, resource, sys, time
from pathlib import Path
from core.broker.config.broker_config import BrokerConfig
from core.broker.requests.fair_scheduler import FairScheduler
from core.cluster.image.broker_metadata import NewTopic
from core.protocol.frame import encode_request
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from core.protocol.schema.list_offsets import *
from core.protocol.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from core.records.compression import CompressionType as C
from core.records.record import Record
from core.records.record_batch_builder import batch_of

NOW = 1_700_000_000_000
figures, to_do = {}, []
requests, partition_count = map(int, sys.argv[1:3])

class Loop:
    def call_soon(self, function):
        to_do.append(function)

class Timer:
    def cancel(self): ...

directory, config = Path(sys.argv[3]), BrokerConfig.parse({"log.retention.ms": "-1"})
try:
    from core.broker.broker_server import BrokerServer
    from core.broker.requests.runtime import ImmediateRuntime

    runtime = ImmediateRuntime()
    broker = BrokerServer(directory, config, runtime=runtime)
    runtime.turns, create_topic = FairScheduler(Loop()), broker.services.topics.create
    topics = lambda: broker.services.image.topics
except ImportError:  # a version before 0.3
    from core.broker.broker import Broker

    broker = Broker(directory, config)
    broker.turns, broker.schedule = FairScheduler(Loop()), lambda delay_ms, function: Timer()
    create_topic, topics = broker.create_topic, lambda: broker.image.topics
for name, partitions, configs in (
    ("t", partition_count, {}), ("plain", 1, {}), ("compacted", 1, {"cleanup.policy": "compact"}),
    ("checked", 1, {"plog.validate.records": "true"}),
):
    try:
        create_topic(NewTopic(name, partitions, configs=configs))
    except Exception:
        pass  # a version that can't

def send(api, request, version=12):
    "How long the longest part of the work took, ms."
    frame = memoryview(bytearray(encode_request(api, version, 1, "bench", request)))[4:]
    started = time.process_time()
    answer = broker.dispatcher.handle(frame)
    longest = time.process_time() - started
    while to_do:
        started = time.process_time()
        to_do.pop(0)()
        longest = max(longest, time.process_time() - started)
    return longest * 1000

def produce(topic, batch, partition=0):
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(partition, batch)])]
    return send(PRODUCE, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data))

def took(what, function, count=1):
    started = time.process_time()
    for _ in range(count):
        longest = function()
    figures[what] = (time.process_time() - started) / count
    return longest

for records, codec in ((1, C.NONE), (100, C.NONE), (1000, C.ZSTD)):
    batch = batch_of([Record(0, NOW, b"key", os.urandom(50) + bytes(50))] * records, compression=codec)
    for topic in ("plain", "checked") if "checked" in topics() else ("plain",):
        produce(topic, batch)
        count = max(requests // (records + 10), 1)
        took(f"validation, {topic}, {records} records, us", lambda: produce(topic, batch), count)
        figures[f"validation, {topic}, {records} records, us"] *= 1e6

one = batch_of([Record(0, NOW, None, b"x" * 50)])
partitions = [FetchPartition(n, fetch_offset=0, partition_max_bytes=1_000_000) for n in range(partition_count)]
for _ in range(50):
    send(FETCH, FetchRequest(max_wait_ms=300_000, min_bytes=50_000_000, max_bytes=60_000_000,
                             topics=[FetchTopic("t", partitions=partitions)]))
took("polls, ms of CPU an append", lambda: produce("t", one), 10)
figures["polls, ms of CPU an append"] *= 1000

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000

def lookup(topic):
    wanted = [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, NOW + 3)])]
    return send(LIST_OFFSETS, ListOffsetsRequest(-1, 0, wanted), 7)

without_keys, keyed = (Path(path).read_bytes() for path in sys.argv[4:])
produce("plain", without_keys)
for what, work in (("lookup", lambda: lookup("plain")), ("compacted", lambda: produce("compacted", keyed))):
    before_mb = peak_mb()
    figures[f"records, {what}, ms without another's turn"] = took(f"records, {what}, CPU s", work)
    figures[f"records, {what}, MB more at the peak"] = peak_mb() - before_mb
print(json.dumps(figures))
os._exit(0)
"""


def large_batches(directory: Path, records: int) -> list[Path]:
    """Of so many records without a key, and with one."""
    paths = []
    for name, record in (("plain", bytes([12, 0, 0, 0, 1, 1, 0])), ("keyed", bytes([14, 0, 0, 0, 2, 65, 1, 0]))):
        batch = build_batch(
            record * records,
            count=records,
            base_timestamp=NOW,
            max_timestamp=NOW + 5,
            compression=CompressionType.ZSTD,
        )
        paths.append(directory / name)
        paths[-1].write_bytes(batch)
    return paths


def one_round(root: Path, sizes: Namespace, batches: list[Path]) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as data_dir:
        arguments = map(str, (sizes.requests, sizes.partitions, data_dir, *batches))
        command = [sys.executable, "-P", "-c", _ROUND, *arguments]
        made = subprocess.run(command, env=environment_of(root), cwd=root, stdout=subprocess.PIPE, check=True)
    figures: dict[str, float] = json.loads(made.stdout)
    return figures


def main() -> None:
    parser = option_parser(__doc__, rounds=5, records=8_000_000, partitions=1000, requests=20_000)
    parser.add_argument("--before", type=Path, help="a checkout of the other version")
    options = parser.parse_args()
    versions = {"before": options.before, "now": HERE} if options.before else {"now": HERE}
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    with scratch_folder() as directory:
        batches = large_batches(directory, options.records)
        for _ in range(options.rounds):
            for version, root in versions.items():
                for what, figure in one_round(root, options, batches).items():
                    found[what, version].append(figure)
    print(f"| what | {' | '.join(versions)} |")
    print("|---" * (1 + len(versions)) + "|")
    for what in sorted({what for what, _ in found}):
        cells = [spread(figures) if (figures := found[what, version]) else "" for version in versions]
        print(f"| {what} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
