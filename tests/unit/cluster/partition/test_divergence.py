"""Two logs that part ways, and what they make of each other's epochs, beside lists of records that are compared."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.cluster.partition.divergence import find_divergence, offset_in_range, truncation_offset
from core.common.error_code import ErrorCode
from core.common.filesystem import FileSystem
from core.files.checkpoint_file import LeaderEpochCache
from core.protocol.schema.fetch import EpochEndOffset
from tests.support.refusals import refused


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


class Replica:
    """A log as a list of (epoch, value), whose offsets are the places in it; its epochs as the engine keeps them."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.records: list[tuple[int, int]] = []
        self.epochs = LeaderEpochCache(directory, FileSystem())

    def append(self, epoch: int, value: int) -> None:
        self.epochs.assign(epoch, len(self.records))
        self.records.append((epoch, value))

    def cut(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs.truncate_from_end(len(self.records))

    def divergence(self, follower: Replica) -> EpochEndOffset | None:
        return find_divergence(
            self.epochs,
            log_start=0,
            log_end=len(self.records),
            last_fetched_epoch=follower.epochs.latest_epoch,
            fetch_offset=len(follower.records),
        )

    def follow(self, leader: Replica) -> int:
        """Cuts this log until the leader has nothing against it; gives how many answers that took."""
        answers = 0
        while (diverging := leader.divergence(self)) is not None:
            before = len(self.records), self.epochs.latest_epoch
            self.cut(truncation_offset(self.epochs, log_end=len(self.records), diverging=diverging))
            assert (len(self.records), self.epochs.latest_epoch) < before, "each answer leads on"
            answers += 1
        return answers


def common(one: Replica, other: Replica) -> list[tuple[int, int]]:
    """The records that both logs begin with."""
    length = 0
    for mine, yours in zip(one.records, other.records, strict=False):
        if mine != yours:
            break
        length += 1
    return one.records[:length]


@given(st.integers(0, 1 << 32))
def test_a_follower_cuts_what_its_leader_does_not_have_and_nothing_else(seed: int) -> None:
    """Any replica may be elected, with whatever it lacks, and may write nothing in its epoch."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        replicas = [Replica(Path(folder, str(number))) for number in range(3)]
        values = iter(range(1 << 20))
        for epoch in range(rng.randint(1, 8)):
            leader = rng.choice(replicas)
            leader.epochs.assign(epoch, len(leader.records))
            for _ in range(rng.choice([0, 1, 4])):
                leader.append(epoch, next(values))
            for follower in replicas:
                if follower is leader or rng.random() < 0.4:
                    continue  # it is away
                kept = common(follower, leader)
                follower.follow(leader)
                assert follower.records == kept
                fetched = leader.records[len(kept) :]
                for record in fetched[: rng.randint(0, len(fetched))]:
                    follower.append(*record)
                assert leader.divergence(follower) is None


def replica(directory: Path, *epochs: int) -> Replica:
    """One with a record of each of those epochs."""
    made = Replica(directory)
    for offset, epoch in enumerate(epochs):
        made.append(epoch, offset)
    return made


def test_an_epoch_that_only_the_leader_knows_takes_two_answers(folder: Path) -> None:
    """KIP-279: between two epochs of the follower the leader has one, of a leader that the follower never met."""
    leader = replica(folder / "leader", 0, 0, 1, 1, 4)
    follower = replica(folder / "follower", 0, 0, 0, 2, 2)
    assert follower.follow(leader) == 2
    assert follower.records == [(0, 0), (0, 1)]


def test_a_follower_that_only_lacks_records_cuts_nothing(folder: Path) -> None:
    leader, follower = replica(folder / "leader", 0, 1, 1, 3), replica(folder / "follower", 0, 1)
    assert follower.follow(leader) == 0
    assert len(follower.records) == 2


def test_a_leader_that_lost_its_end_is_followed_to_there(folder: Path) -> None:
    leader, follower = replica(folder / "leader", 0, 0), replica(folder / "follower", 0, 0, 0, 0)
    assert leader.divergence(follower) == EpochEndOffset(0, 2)
    assert follower.follow(leader) == 1


def test_a_follower_without_epochs_goes_where_the_leader_says(folder: Path) -> None:
    epochs = replica(folder / "a").epochs
    assert truncation_offset(epochs, log_end=50, diverging=EpochEndOffset(3, 20)) == 20
    assert truncation_offset(epochs, log_end=10, diverging=EpochEndOffset(3, 20)) == 10


def test_who_says_no_epoch_or_is_below_the_start_diverges_nowhere(folder: Path) -> None:
    epochs = replica(folder / "a", 0, 0, 2).epochs
    log = {"log_start": 2, "log_end": 3}
    assert find_divergence(epochs, **log, last_fetched_epoch=-1, fetch_offset=9) is None
    assert find_divergence(epochs, **log, last_fetched_epoch=1, fetch_offset=1) is None
    assert find_divergence(epochs, **log, last_fetched_epoch=2, fetch_offset=3) is None
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        find_divergence(epochs, **log, last_fetched_epoch=3, fetch_offset=3)


def test_who_is_out_of_range_goes_to_where_the_leaders_log_is() -> None:
    assert offset_in_range(log_start=0, log_end=50, leader_start=10, leader_end=40) == 40
    assert offset_in_range(log_start=40, log_end=50, leader_start=10, leader_end=40) == 40
    assert offset_in_range(log_start=0, log_end=50, leader_start=60, leader_end=90) == 60
    in_range = offset_in_range(log_start=0, log_end=50, leader_start=10, leader_end=90)
    assert in_range == 50, "what was out of range is not any more"


def test_who_has_nothing_that_can_stay_begins_where_the_leader_does() -> None:
    """What lies between there and where the leader's log ends would be missing."""
    assert offset_in_range(log_start=45, log_end=50, leader_start=10, leader_end=40) == 10
    assert offset_in_range(log_start=45, log_end=30, leader_start=10, leader_end=90) == 10
