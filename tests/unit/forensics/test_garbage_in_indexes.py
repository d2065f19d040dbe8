"""An index is never believed blindly: whatever stands in one, everybody gives the records of the log."""

from __future__ import annotations

import contextlib
import shutil
import struct
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from random import Random

import pytest

from core.client.read.cluster_source import ClusterSource
from core.client.read.directory_source import DirectorySource
from core.client.read.record_source import ReadOptions, RecordSource
from core.common.topic_partition import TopicPartition
from core.files.file_names import CLEAN_SHUTDOWN
from core.forensics.partition_reader import DirectoryReader
from core.pipeline.session import Session
from tests.support.logs import NOW, append, append_marker, make_batch, open_log, read_all

T = TopicPartition("t", 0)
PER_SEGMENT = 12


def transactions(folder: Path, segments: int) -> Path:
    """Segments of four transactions, each of two records and a marker, every third aborted. The times rise by ten from
    one transaction to the next.
    """
    log = open_log(folder, index_interval_bytes=64)
    for number in range(4 * segments):
        if number and number % 4 == 0:
            log.roll()
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2 * number, "is_transactional": True}
        append(log, make_batch(b"a%d" % number, b"b%d" % number, timestamp=NOW + 10 * number, **fields))  # type: ignore[arg-type]
        append_marker(log, 7, is_commit=number % 3 != 0)
    log.close()
    return folder


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """36 offsets in three segments."""
    return transactions(tmp_path / "t-0", 3)


def shuffled(entry: struct.Struct, data: bytes) -> bytes:
    entries = [data[at : at + entry.size] for at in range(0, len(data), entry.size)]
    return b"".join(entries[::-1])


def changed(entry: struct.Struct, data: bytes, *add: int) -> bytes:
    pairs = entry.iter_unpack(data)
    return b"".join(entry.pack(first + add[0], second + add[1]) for first, second in pairs)


def of_last(entry: struct.Struct, data: bytes, first: int, second: int) -> bytes:
    """The last entry alone is other."""
    return data[: -entry.size] + entry.pack(first, second)


FORMS = {".index": struct.Struct(">ii"), ".timeindex": struct.Struct(">qi")}
GARBAGE: dict[str, Callable[[struct.Struct, bytes], bytes]] = {
    "ones": lambda _, data: b"\xff" * len(data),
    "the largest": lambda _, data: b"\x7f\xff\xff\xff" * (len(data) // 4),
    "zeros": lambda _, data: bytes(len(data)),
    "noise": lambda _, data: Random(1).randbytes(len(data)),
    "other noise": lambda _, data: Random(2).randbytes(len(data)),
    "text": lambda _, data: (b"garbage that is no index " * 9)[: len(data)],
    "odd size": lambda _, data: data[:-3],
    "from the last to the first": shuffled,
    "the second too large": lambda entry, data: changed(entry, data, 0, 5),
    "the second too small": lambda entry, data: changed(entry, data, 0, -5),
    "the first too large": lambda entry, data: changed(entry, data, 5, 0),
    "the first too small": lambda entry, data: changed(entry, data, -5, 0),
    "negative positions": lambda entry, data: changed(entry, data, 0, -(1 << 30)),
    "beyond the file": lambda entry, data: changed(entry, data, 0, 1 << 30),
    "the last one far away": lambda entry, data: of_last(entry, data, (1 << 31) - 1, 81),
    "the last one of early": lambda entry, data: of_last(entry, data, 1, (1 << 31) - 1),
}


@contextlib.contextmanager
def spoilt(directory: Path, suffix: str, segment: int, garbage: str) -> Iterator[None]:
    path = directory / f"{segment * PER_SEGMENT:020d}{suffix}"
    whole = path.read_bytes()
    path.write_bytes(GARBAGE[garbage](FORMS[suffix], whole))
    yield
    path.write_bytes(whole)


Answers = tuple[dict[int, object], dict[int, object], list[int]]


def answers_of(door: Callable[..., contextlib.AbstractContextManager[RecordSource]]) -> Answers:
    """All records, the committed ones, and the offset of each time."""
    found: list[dict[int, object]] = []
    for read_committed in (False, True):
        with door(read_committed=read_committed) as source:
            starts, ends = source.starts([T]), source.ends([T])
            batches = [batch for _, some in source.read(starts, ends) for batch in some if not batch.is_control]
            found.append({r.offset: (r.key, r.value) for batch in batches for r in batch.records()})
    with door(read_committed=False) as source:
        times = [source.offsets_at([T], NOW + at)[T] for at in range(-5, 125, 5)]
    return found[0], found[1], times


@contextlib.contextmanager
def files(directory: Path, *, read_committed: bool) -> Iterator[RecordSource]:
    options = ReadOptions(read_committed=read_committed)
    with contextlib.closing(DirectorySource(DirectoryReader(directory), options=options)) as source:
        yield source


@contextlib.contextmanager
def server(directory: Path, *, read_committed: bool, is_owner: bool) -> Iterator[RecordSource]:
    """Of a copy, if it is to be the owner's, so that each starts with the same garbage."""
    copy = directory.parent.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory.parent, copy)
    with Session(directory=copy).open_client(is_read_only=not is_owner) as client:
        yield ClusterSource(client, ReadOptions(read_committed=read_committed))


@pytest.mark.parametrize(
    "door",
    ["files", pytest.param("read only", marks=pytest.mark.longer), pytest.param("owner", marks=pytest.mark.longer)],
)
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "crashed"])
@pytest.mark.parametrize("suffix", FORMS)
def test_garbage_in_an_index_changes_no_answer(directory: Path, suffix: str, door: str, *, is_clean: bool) -> None:
    """Of a sealed segment and of the active one, each kind of garbage in turn."""
    if is_clean:
        (directory.parent / CLEAN_SHUTDOWN).touch()
    ask = partial(files, directory) if door == "files" else partial(server, directory, is_owner=door == "owner")
    truth = {3 * n + k: (b"k", b"%s%d" % (b"ab"[k : k + 1], n)) for n in range(12) for k in (0, 1)}
    committed = {offset: record for offset, record in truth.items() if (offset // 3) % 3}
    starts = [min((o for o in truth if o // 3 * 10 + o % 3 >= at), default=36) for at in range(-5, 125, 5)]
    for segment, garbage in product((0, 2), GARBAGE):
        with spoilt(directory, suffix, segment, garbage):
            assert answers_of(ask) == (truth, committed, starts), f"{garbage} in the index of segment {segment}"


@pytest.mark.parametrize("segment", [0, 2], ids=["sealed", "active"])
@pytest.mark.parametrize("suffix", FORMS)
def test_a_log_goes_on_with_garbage_in_its_index(directory: Path, suffix: str, segment: int) -> None:
    """Each offset is asked for alone, and what is appended then is found again."""
    for number, garbage in enumerate(GARBAGE):
        copy = Path(shutil.copytree(directory, directory.with_name(f"u-{number}")))
        with spoilt(copy, suffix, segment, garbage):
            ensure_goes_on(copy)


def ensure_goes_on(directory: Path) -> None:
    log = open_log(directory, index_interval_bytes=64)
    for offset in range(36):
        assert [r.offset for r in read_all(log, offset, max_bytes=200) if r.offset == offset or r.offset == 35]
    for number in range(8):
        append(log, make_batch(b"new%d" % number, timestamp=NOW + 1000 + number))
    assert [r.offset for r in read_all(log)][-8:] == list(range(36, 44))
    log.roll()
    log.close()
    shadow = open_log(directory, index_interval_bytes=64)
    assert [r.value for r in read_all(shadow, 36)] == [b"new%d" % number for number in range(8)]
    shadow.close()
