"""What rights cost a small request: two versions, and this one with few ACLs and many, in turns.

    git worktree add /tmp/before COMMIT
    .venv/bin/python -m benchmarks.rights --before /tmp/before [--rounds 9] [--requests 20000] [--acls 10000]

Each is a process with a broker, whose dispatcher gets requests from a session without sockets:

- Produce, usual: one record of 100 bytes, known by the bytes of its start
- Produce, decoded: the same to two partitions
- Fetch: one record of two partitions, by name

The CPU time of a request, in microseconds. A round has ten turns of each, of which the least counts: others at work on
the machine only add. Medians of the rounds, with the least and the most; then of the ratios of the rounds: no
authorizer to the version before, and ACLs to no authorizer. With `many` there are ACLs of 500 principals, of which one
asks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any

NAMES = ("before", "none", "few", "many")
PRINCIPALS = 500
TURNS = 10


class Worker:
    """A process that imports plog from a checkout, and measures when it is told to."""

    def __init__(self, name: str, checkout: Path, acls: int) -> None:
        from benchmarks.peers import environment_of

        command = [sys.executable, "-P", __file__, "--worker", name, str(acls)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=environment_of(checkout), stdin=pipe, stdout=pipe, text=True)

    def measure(self, count: int) -> dict[str, float]:
        """Returns the microseconds of CPU time of a request, by its kind."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{count}\n")
        stdin.flush()
        found: dict[str, float] = json.loads(stdout.readline())
        return found

    def stop(self) -> None:
        self._process.communicate()


def work(name: str, acls: int) -> None:
    """Measures as often as a line with a count comes in; with the plog that the process imports."""
    from core.cluster.image.broker_metadata import NewTopic
    from core.protocol.frame import encode_request
    from core.protocol.schema.fetch import FETCH, FetchPartition, FetchTopic
    from core.protocol.schema.produce import PRODUCE, PartitionProduceData
    from tests.support.broker import PRODUCE_BY_NAME, fetch_request, open_broker, produce_request
    from tests.support.logs import make_batch

    with tempfile.TemporaryDirectory() as directory:
        broker = open_broker(Path(directory))
        broker.services.topics.create(NewTopic("topic", 2))
        one = produce_request(make_batch(bytes(100)), "topic", acks=1)
        two = produce_request(make_batch(bytes(100)), "topic", acks=1)
        two.topic_data[0].partition_data.append(PartitionProduceData(1, two.topic_data[0].partition_data[0].records))
        fetch = fetch_request(0, "topic", partition_max_bytes=100)
        fetch.topics = [
            FetchTopic("topic", partitions=[FetchPartition(n, fetch_offset=0, partition_max_bytes=100) for n in (0, 1)])
        ]
        frames = {
            "Produce, usual": encode_request(PRODUCE, PRODUCE_BY_NAME, 7, "bench", one)[4:],
            "Produce, decoded": encode_request(PRODUCE, PRODUCE_BY_NAME, 7, "bench", two)[4:],
            "Fetch": encode_request(FETCH, PRODUCE_BY_NAME, 7, "bench", fetch)[4:],
        }
        has_sessions = find_spec("core.broker.requests.client_session") is not None
        asker = (_session(name, acls),) if has_sessions else ("127.0.0.1", "127.0.0.1", "PLAINTEXT")
        handle: Any = broker.dispatcher.handle
        for line in sys.stdin:
            count, found = int(line), {}
            for kind, frame in frames.items():
                started = process_time()
                for _ in range(count):
                    handle(memoryview(bytearray(frame)), *asker)
                found[kind] = (process_time() - started) / count * 1e6
            print(json.dumps(found), flush=True)
        broker.close()


def _session(name: str, acls: int) -> Any:
    from core.broker.requests.authorizer import Authorizer
    from core.broker.requests.client_session import Session
    from core.security.acl import READ_TOPIC, WRITE_TOPIC, Acl, AclPermissionType, PatternType
    from core.security.acl_rules import AclRules
    from core.security.principal import Principal

    def allow(right: Any, user: int, topic: str) -> Acl:
        return Acl(
            right.resource_type,
            topic,
            PatternType.LITERAL,
            f"User:{user}",
            "*",
            right.operation,
            AclPermissionType.ALLOW,
        )

    entries = [allow(right, 0, "topic") for right in (READ_TOPIC, WRITE_TOPIC)]
    if name == "many":
        entries += [allow(WRITE_TOPIC, number % PRINCIPALS, f"topic-{number}") for number in range(acls)]
    authorizer = Authorizer(AclRules(entries)) if name in ("few", "many") else None
    return Session(Principal("User", "0"), "PLAINTEXT", "127.0.0.1", "127.0.0.1", authorizer)


def run(options: Namespace) -> dict[tuple[str, str], list[float]]:
    from benchmarks.peers import HERE

    workers = {name: Worker(name, options.before if name == "before" else HERE, options.acls) for name in NAMES}
    figures: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(-1, options.rounds):  # the first is for the caches
        found: dict[tuple[str, str], list[float]] = defaultdict(list)
        for turn in range(TURNS):
            first = turn % len(NAMES)
            for name in (*NAMES[first:], *NAMES[:first]):
                for kind, figure in workers[name].measure(options.requests // TURNS).items():
                    found[kind, name].append(figure)
        if number >= 0:
            for what, several in found.items():
                figures[what].append(min(several))
    for worker in workers.values():
        worker.stop()
    return figures


def main() -> None:
    from benchmarks.figures import quotients, spread
    from benchmarks.options import option_parser

    parser = option_parser(__doc__, rounds=9, requests=20_000, acls=10_000)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the other version")
    figures = run(parser.parse_args())
    print("| CPU us | before | none | few | many | none / before | few / none | many / none |")
    print(f"|{'---|' * 8}")
    for kind in dict.fromkeys(kind for kind, _ in figures):
        columns = [spread(figures[kind, name]) for name in NAMES]
        pairs = (("none", "before"), ("few", "none"), ("many", "none"))
        columns += [spread(quotients(figures[kind, one], figures[kind, other]), ".3f") for one, other in pairs]
        print(f"| {kind} | {' | '.join(columns)} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2], int(sys.argv[3]))
    else:
        main()
