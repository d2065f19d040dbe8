"""What ZooKeeper says of a cluster's partitions, and what their replicas have on their disks."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from kazoo.exceptions import NoNodeError

from core.common.topic_partition import TopicPartition
from core.files.file_names import LOG_SUFFIX
from core.records.record_batch import RecordBatch
from tests.support.kafka39 import CHROOT, zookeeper_client
from tests.support.waiting import wait_until

_BATCH_START = struct.Struct(">qi")


class State(NamedTuple):
    """As the controller wrote it; `replicas` in their order, the preferred leader first."""

    replicas: tuple[int, ...]
    leader: int
    isr: frozenset[int]
    epoch: int

    @property
    def is_whole(self) -> bool:
        return self.leader >= 0 and self.isr == frozenset(self.replicas)


class Metadata:
    """Reads ZooKeeper, and writes by hand; owned by one thread."""

    def __init__(self, address: str) -> None:
        self._stack = ExitStack()
        self._client = self._stack.enter_context(zookeeper_client(address + CHROOT))

    def close(self) -> None:
        self._stack.close()

    def alive(self) -> set[int]:
        """The brokers that are registered."""
        return set(map(int, self._children("/brokers/ids")))

    def controller(self) -> int | None:
        """The broker that is the controller; None while nobody is."""
        with suppress(NoNodeError):
            return int(self._read("/controller")["brokerid"])
        return None

    def controllers(self) -> int:
        """How many controllers have been elected."""
        return int(self._read("/controller_epoch"))

    def depose(self) -> int | None:
        """Deletes /controller; gives the broker whose it was."""
        found = self.controller()
        with suppress(NoNodeError):
            self._client.retry(self._client.delete, "/controller")
        return found

    def topics(self) -> list[str]:
        """All topics, but for those that are to be deleted."""
        return sorted({*self._children("/brokers/topics")} - {*self._children("/admin/delete_topics")})

    def assignment(self, topic: str) -> Mapping[str, list[int]]:
        """The replicas of each partition; none of a topic that is not there."""
        with suppress(NoNodeError):
            return dict(self._read(f"/brokers/topics/{topic}")["partitions"])
        return {}

    def unfinished(self) -> list[str]:
        """What a controller has begun, and has not brought to its end, a sentence each."""
        found = [f"{name} is to be deleted" for name in self._children("/admin/delete_topics")]
        for topic in self._children("/brokers/topics"):
            with suppress(NoNodeError):
                node = self._read(f"/brokers/topics/{topic}")
                found += [
                    f"replicas of {topic}-{number} move: {node[how]}"
                    for how in ("adding_replicas", "removing_replicas")
                    for number in node[how]
                ]
                led = {*self._children(f"/brokers/topics/{topic}/partitions")}
                found += [f"{topic}-{number} was never led" for number in node["partitions"].keys() - led]
        return found

    def states(self) -> dict[TopicPartition, State]:
        """Of all partitions; of those that are just made or deleted only what is there."""
        found = {}
        for topic in self._children("/brokers/topics"):
            base = f"/brokers/topics/{topic}"
            with suppress(NoNodeError):
                for number, replicas in self._read(base)["partitions"].items():
                    state = self._read(f"{base}/partitions/{number}/state")
                    found[TopicPartition(topic, int(number))] = State(
                        tuple(replicas), state["leader"], frozenset(state["isr"]), state["leader_epoch"]
                    )
        return found

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        """AssertionError, with all states, if it is never so."""
        wait_until(is_so, lambda: f"{what}: alive {self.alive()}, {self.states()}")

    def settle(self, nodes: Collection[int], meanwhile: Callable[[], None] = lambda: None) -> None:
        """Waits until all of these live, all replicas are in sync, and nothing that a controller began is left undone.
        `meanwhile` is called before each look.
        """

        def is_so() -> bool:
            meanwhile()
            return (
                self.alive() == set(nodes)
                and self.controller() is not None
                and not self.unfinished()
                and all(state.is_whole for state in self.states().values())
            )

        self.wait_until(is_so, "all replicas are in sync")

    def _children(self, path: str) -> list[str]:
        return list(self._client.retry(self._client.get_children, path))

    def read(self, path: str) -> Any:
        """Reads the JSON of a node that is there."""
        return self._read(path)

    def write(self, path: str, node: Any) -> None:
        """Changes a node that is there, by hand."""
        self._client.retry(self._client.set, path, json.dumps(node).encode())

    def _read(self, path: str) -> Any:
        return json.loads(self._client.retry(self._client.get, path)[0])


def differences(folders: Mapping[int, Path]) -> list[str]:
    """How a partition's logs of these brokers differ, a sentence each: from where all have batches, as retention comes
    at its own time to each. Segments may begin elsewhere.
    """
    logs = {node: dict(_batches(folder)) for node, folder in folders.items()}
    start = max(min(log, default=0) for log in logs.values())
    (first_node, first), *others = logs.items()
    found = []
    for node, log in others:
        offsets = sorted(o for o in first.keys() | log.keys() if o >= start and first.get(o) != log.get(o))
        if offsets:
            batches = ", ".join(_told(one.get(offsets[0])) for one in (first, log))
            found.append(
                f"brokers {first_node} and {node} differ at {len(offsets)} of {len(first)} batches, first at offset "
                f"{offsets[0]}: {batches}"
            )
    return found


def differences_of_keys(folders: Mapping[int, Path]) -> list[str]:
    """How the logs differ of a topic that each broker compacts by itself: in the latest record of each key."""
    (first_node, first), *others = ((node, _latest_records(folder)) for node, folder in folders.items())
    return [
        f"brokers {first_node} and {node} differ in {len(first.items() ^ other.items())} records of {len(first)}"
        for node, other in others
        if first != other
    ]


def _latest_records(folder: Path) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {
        record.key: (record.offset, record.value)
        for _, data in _batches(folder)
        for batch in [RecordBatch(memoryview(data))]
        for record in batch.records()
    }


def _told(batch: bytes | None) -> str:
    return "nothing" if batch is None else f"{len(batch)} bytes, leader epoch {batch[12:16].hex()}"


def _batches(folder: Path) -> Iterator[tuple[int, bytes]]:
    """Each whole batch of the folder by its base offset."""
    for path in sorted(folder.glob(f"*{LOG_SUFFIX}")):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # retention is at work
            continue
        position = 0
        while position + _BATCH_START.size <= len(data):
            offset, length = _BATCH_START.unpack_from(data, position)
            end = position + _BATCH_START.size + length
            if end > len(data):
                break
            yield offset, data[position:end]
            position = end
