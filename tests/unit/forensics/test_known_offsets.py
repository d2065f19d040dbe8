from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import pytest

from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import write_offset_checkpoint
from core.forensics.known_offsets import KnownOffsets
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.missing_offsets import explain_holes
from tests.support.for_each import for_each
from tests.support.golden import directories
from tests.support.logs import NOW, append, make_batch, open_log

PARTITION = TopicPartition("t", 0)


def folder(root: Path, *names: str, epochs: str = "") -> Path:
    """The folder of t-0 with empty files of these names, and a `leader-epoch-checkpoint` if there are epochs."""
    directory = root / "t-0"
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / re.sub(r"^\d+", lambda match: f"{int(match[0]):020d}", name)).touch()
    if epochs:
        lines = epochs.split(", ")
        (directory / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    return directory


def evidence_of(directory: Path) -> KnownOffsets:
    return KnownOffsetsOfDirectory(directory.parent).of(directory)


# --- where the log began


def test_no_folder_of_kafkas_has_lost_its_first_segments() -> None:
    assert [path.name for path in directories() if evidence_of(path).known_start is not None] == []


@for_each(
    "names, epochs, known_start",
    [
        (["0.log", "9.log"], "0 0", None),
        (["9.log"], "0 9", None),  # as retention leaves it
        (["9.log"], "0 12", None),  # as DeleteRecords does
        (["0.log"], "0 48", None),  # batches of old formats have no epoch
        (["9.log"], "", None),
        (["9.log"], "0 0", 0),
        (["9.log"], "3 4, 5 12", 4),
        (["9.log", "4.index"], "", 4),
        (["9.log", "4.timeindex"], "0 0", 0),
        (["9.log", "4.snapshot"], "0 9", None),  # of a clean stop within a segment that was deleted since
        (["9.log", "4.log.deleted", "4.index"], "0 0", None),  # a deletion that a crash cut short
        (["9.log", "9-0000000001.checkpoint"], "1 0", None),  # what a snapshot of the metadata holds
        (["9.log", "4-0000000001.checkpoint"], "1 0", 0),
        ([], "0 5", 5),
        (["9.index"], "", 9),
    ],
)
def test_what_tells_where_a_log_began(tmp_path: Path, names: list[str], epochs: str, known_start: int | None) -> None:
    assert evidence_of(folder(tmp_path, *names, epochs=epochs)).known_start == known_start


@for_each("recovery_point, known_end", [(12, 12), (-1, 0)])
def test_a_log_reached_its_recovery_point_if_that_is_known(tmp_path: Path, recovery_point: int, known_end: int) -> None:
    directory = folder(tmp_path, "0.log")
    name = "recovery-point-offset-checkpoint"
    write_offset_checkpoint(tmp_path / name, {PARTITION: recovery_point}, FileSystem())
    found = evidence_of(directory)
    assert found.known_end == known_end
    assert not known_end or found.source == name


def test_a_log_begins_at_its_first_segment_or_where_the_checkpoint_says_or_where_it_is_known_to_have_begun() -> None:
    assert KnownOffsets().start_of(9) == 9
    assert KnownOffsets(known_start=4).start_of(9) == 4
    assert KnownOffsets(known_start=4, log_start_offset=6).start_of(9) == 6
    assert KnownOffsets(known_start=4, log_start_offset=12).start_of(9) == 12
    assert KnownOffsets().start_of(None) == 0
    assert KnownOffsets(known_start=4).start_of(None) == 4


@pytest.mark.parametrize(
    ("metadata", "known_start"),
    [(None, None), (b"...remote.storage.enable...true...", None), (b"...retention.ms...", 0)],
    ids=["no metadata log", "tiered", "not tiered"],
)
def test_segments_on_another_store_are_not_lost(
    tmp_path: Path, metadata: bytes | None, known_start: int | None
) -> None:
    """Kafka keeps the epochs of tiered segments, and lists where their log starts."""
    directory = folder(tmp_path, "9.log", epochs="0 0")
    write_offset_checkpoint(tmp_path / "log-start-offset-checkpoint", {PARTITION: 0}, FileSystem())
    if metadata is not None:
        (tmp_path / "__cluster_metadata-0").mkdir()
        (tmp_path / "__cluster_metadata-0" / f"{0:020d}.log").write_bytes(metadata)
    assert evidence_of(directory).known_start == known_start


# --- how far it went, by indexes alone


def offset_index(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


@for_each(
    "suffix, data, known_end",
    [
        ("index", b"", 100),
        ("index", offset_index((4, 300), (8, 700)), 109),
        ("index", offset_index((4, 300), (8, 700)) + bytes(4096), 109),  # as Kafka keeps it while it runs
        ("index", bytes(4096), 100),
        ("index", offset_index((4, 300), (3, 700)), 100),
        ("index", offset_index((4, 300), (8, 200)), 100),
        ("index", offset_index((4, 300), (8, 700))[:-1], 100),
        ("index", offset_index((4, 300)) + bytes(8) + offset_index((8, 700)), 100),
        ("timeindex", struct.pack(">qiqi", 1000, 4, 2000, 11), 112),
        ("timeindex", struct.pack(">qiqi", 2000, 4, 1000, 11), 100),
        ("txnindex", struct.pack(">hqqqq", 0, 7, 101, 120, 101), 121),
        ("txnindex", struct.pack(">hqqqq", 1, 7, 101, 120, 101), 100),
    ],
)
def test_the_last_entry_of_an_index_without_its_log_was_in_the_log(
    tmp_path: Path, suffix: str, data: bytes, known_end: int
) -> None:
    directory = folder(tmp_path, "0.log")
    (directory / f"{100:020d}.{suffix}").write_bytes(data)
    assert evidence_of(directory).known_end == known_end


@pytest.mark.parametrize(
    ("names", "lone"),
    [
        (["0.log", "4.log.deleted", "4.index.deleted", "4.timeindex", "9.log"], ()),
        (["0.log", "4.log.deleted", "4.index.deleted", "4.timeindex.deleted", "4.index", "9.log"], (4,)),
        (["0.log", "4.log.deleted", "4.index.deleted", "4.index", "4.log.swap", "9.log"], ()),
    ],
    ids=["being deleted", "lost after a compaction", "being put in place"],
)
def test_a_compaction_does_not_explain_that_the_log_it_made_is_gone(
    tmp_path: Path, names: list[str], lone: tuple[int, ...]
) -> None:
    assert evidence_of(folder(tmp_path, *names)).lone_indexes == lone


def test_an_index_without_its_log_proves_no_more_than_the_segments_after_it(tmp_path: Path) -> None:
    directory = folder(tmp_path, "0.log", "200.log")
    (directory / f"{100:020d}.index").write_bytes(offset_index((900, 300)))
    assert evidence_of(directory).known_end == 100


@pytest.mark.parametrize(("compacted_below", "count"), [(9, "at most 5 records, because"), (8, "5 records")])
def test_a_missing_segment_that_was_cleaned_had_perhaps_fewer_records(compacted_below: int, count: str) -> None:
    evidence = KnownOffsets(lone_indexes=(4,))
    (hole,) = explain_holes(4, 9, evidence, Path("0.log"), 0, compacted_below=compacted_below)
    assert hole.evidence.startswith(f"segment 4 is missing: offsets 4 to 8, {count}")


def test_what_recoveries_gave_up_and_what_lies_between_are_holes_of_their_own() -> None:
    def explain(compacted_below: int) -> list[tuple[int, int, str]]:
        given_up = [(0, 5), (7, 8), (9, 14)]
        holes = explain_holes(3, 12, KnownOffsets(given_up=given_up), Path("0.log"), 0, compacted_below=compacted_below)
        return [(hole.start, hole.end, hole.reason.value) for hole in holes]

    given_up = [(3, 5, "truncated"), (7, 8, "truncated"), (9, 12, "truncated")]
    assert explain(9) == sorted([*given_up, (5, 7, "compacted"), (8, 9, "compacted")])
    assert explain(8) == sorted([*given_up, (5, 7, "compacted"), (8, 9, "unknown")])


def test_a_folder_or_a_pipe_with_an_indexs_name_tells_of_no_segment(tmp_path: Path) -> None:
    directory = folder(tmp_path, "0.log")
    (directory / f"{1000:020d}.timeindex").mkdir()
    os.mkfifo(directory / f"{2000:020d}.snapshot")
    (directory / f"{3000:020d}.index").symlink_to("nowhere")
    known = evidence_of(directory)
    assert (known.known_end, known.lone_indexes) == (0, ())


def test_empty_indexes_between_segments_tell_of_none(tmp_path: Path) -> None:
    """The disk may have refused the `.log` of a new segment, and the log went on without it."""
    log = open_log(tmp_path / "t-0")
    for _ in range(3):
        append(log, make_batch(b"v"))
        log.roll()
    log.close()
    for suffix in (".index", ".timeindex"):
        (tmp_path / "t-0" / f"{1:020d}{suffix}").unlink()
        (tmp_path / "t-0" / f"{1:020d}{suffix}").touch()
    (tmp_path / "t-0" / f"{1:020d}.log").rename(tmp_path / "gone.log")
    assert KnownOffsetsOfDirectory(tmp_path).of(tmp_path / "t-0").lone_indexes == ()
    (tmp_path / "t-0" / f"{1:020d}.timeindex").write_bytes(struct.pack(">qi", NOW, 0))
    assert KnownOffsetsOfDirectory(tmp_path).of(tmp_path / "t-0").lone_indexes == (1,)
