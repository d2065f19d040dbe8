"""Copiers of all kinds side by side in one cluster, what they copy, and whether all of it was copied exactly once."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Self

from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import KafkaClient
from core.common.endpoint import parse_bootstrap
from core.common.topic_partition import TopicPartition
from tests.crash.copiers.copier_process import COUNTS, SOURCE, CopierProcess, franz_gos, librdkafkas, streams_counter
from tests.crash.copiers.feed import Feed, Record, Watch, read_all
from tests.crash.copiers.librdkafka_copier import PARTITIONS
from tests.support.server import call_plog
from tests.support.waiting import wait_until

TARGETS = ("out-confluent", "out-idempotent", "out-franz", COUNTS)
_IDLE_STATES = {"Empty", "CompleteCommit", "CompleteAbort"}


class CopierCrew:
    """Owned by one thread. Fed and at work while `with` lasts; then `finish` it."""

    def __init__(
        self,
        address: str,
        folder: Path,
        transactional_ids: Mapping[str, str],
        instances: int = 1,
        targets: Sequence[str] = TARGETS,
    ) -> None:
        """`transactional_ids` of the copiers `confluent` and `franz`, which name their groups as well; `instances`
        of the Streams application. A copier, or its instances, for each of the targets.
        """
        self._address = address
        self._groups = transactional_ids
        self.targets = targets
        folder.mkdir()

        def copiers_of(target: str) -> list[CopierProcess]:
            match target:
                case "out-confluent":
                    return [librdkafkas("transactional", transactional_ids["confluent"], address, target, folder)]
                case "out-idempotent":
                    return [librdkafkas("idempotent", "idempotent", address, target, folder)]
                case "out-franz":
                    return [franz_gos(transactional_ids["franz"], address, target, folder)]
            return [streams_counter(f"streams-{number}", address, folder) for number in range(instances)]

        self.copiers = [copier for target in targets for copier in copiers_of(target)]
        self._feed = Feed(address, SOURCE)
        self._watch = Watch(address, self.targets)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for copier in self.copiers:
            self._stack.callback(copier.kill)
            copier.start()
        self._stack.enter_context(self._watch)
        self._stack.enter_context(self._feed)
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def total(self) -> int:
        """How many records there are to copy until now."""
        return self._feed.total()

    def begun_again(self) -> dict[str, int]:
        return {copier.name: copier.begun_again() for copier in self.copiers}

    def wait_for_progress(self, ensure: Callable[[], None] = lambda: None) -> None:
        """Until all have committed what there is to copy now, and somewhat more. `ensure` is called meanwhile."""
        before = self._feed.total()
        self._wait_until(lambda: self._feed.total() >= before + 20, "the feed gets on", ensure)
        self._wait_until_copied(ensure)

    def _wait_until_copied(self, ensure: Callable[[], None] = lambda: None) -> None:
        wanted = self._feed.total()

        def behind() -> dict[str, int]:
            return {target: n for target in self.targets if (n := self._watch.total(target)) < wanted}

        self._wait_until(lambda: not behind(), lambda: f"{wanted} records are copied: {behind()}", ensure)

    def _wait_until(
        self, is_so: Callable[[], bool], what: str | Callable[[], str], ensure: Callable[[], None] = lambda: None
    ) -> None:
        """Fails at once if one of the crew has ended; if it is never so, the copiers say where they stand."""

        def is_so_and_all_are_well() -> bool:
            self._ensure_well()
            ensure()
            return is_so()

        try:
            wait_until(is_so_and_all_are_well, what)
        except AssertionError:
            for copier in self.copiers:
                copier.ask_where_it_is()
            raise

    def _ensure_well(self) -> None:
        for worker in (self._feed, self._watch):
            assert worker.failure is None, worker.failure
        for copier in self.copiers:
            assert not copier.has_ended, f"{copier.name} has ended by itself: {copier.last_words()}"

    def finish(self) -> None:
        """Has all copied, and all come to an end; AssertionError if anything is not as it must be."""
        self._feed.stop()
        self._wait_until_copied()
        for copier in self.copiers:
            copier.stop()
        self._watch.stop()
        self._ensure_nothing_is_open()
        self._ensure_offsets()
        self._ensure_copied()

    def _ensure_nothing_is_open(self) -> None:
        servers = ("--output", "ndjson", "--bootstrap-server", self._address)

        def open_states() -> list[str]:
            listed = call_plog("transaction", "list", *servers).stdout.splitlines()
            assert listed
            return [state for line in listed if (state := json.loads(line)["state"]) not in _IDLE_STATES]

        wait_until(lambda: open_states() == [], lambda: f"transactions are open: {open_states()}")
        hanging = call_plog("transaction", "find-hanging", "--all", *servers)
        assert (hanging.returncode, hanging.stdout) == (0, b""), hanging

    def _ensure_offsets(self) -> None:
        """The copiers' groups are where their source ends."""
        ends = {TopicPartition(SOURCE, partition): len(kept) for partition, kept in self._feed.acknowledged.items()}
        with closing(KafkaClient(parse_bootstrap(self._address))) as client:
            for group in self._groups.values():
                offsets = {name: kept.offset for name, kept in GroupAdmin(client).offsets(group).items()}
                assert offsets == ends, f"offsets of {group}"

    def _ensure_copied(self) -> None:
        """Read once more, all is what the watch has seen committed: each record once, and in order."""
        fed = read_all(self._address, [SOURCE])
        assert {partition: fed[SOURCE, partition] for partition in range(PARTITIONS)} == self._feed.acknowledged
        found = read_all(self._address, self.targets)
        assert found == self._watch.found, "what was read is still there"
        for target in self.targets:
            if target != COUNTS:
                for partition in range(PARTITIONS):
                    assert found[target, partition] == fed[SOURCE, partition], f"{target}-{partition}"
        if COUNTS in self.targets:
            self._ensure_counted(fed, found)

    def _ensure_counted(
        self, fed: Mapping[tuple[str, int], list[Record]], found: Mapping[tuple[str, int], list[Record]]
    ) -> None:
        occurrences: dict[bytes, int] = defaultdict(int)
        for partition in range(PARTITIONS):
            for _, word in fed[SOURCE, partition]:
                occurrences[word] += 1
        counted = counts_by_word([one for partition in range(PARTITIONS) for one in found[COUNTS, partition]])
        assert counted == {word: list(range(1, number + 1)) for word, number in occurrences.items()}


def counts_by_word(records: list[Record]) -> dict[bytes, list[int]]:
    """In the order in which they were written; a count is a long."""
    counted: dict[bytes, list[int]] = defaultdict(list)
    for word, number in records:
        counted[word].append(int.from_bytes(number, "big"))
    return counted
