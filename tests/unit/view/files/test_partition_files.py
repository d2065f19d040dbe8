"""Files beside a log as tables: their entries are the files', and what does not fit is what `plog verify` finds."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import core.view.files.producer_tables
from core.common.errors import AccessError
from core.common.filesystem import File, FileSystem
from core.files.checkpoint_file import write_partition_metadata
from core.files.file_names import DAMAGED_RANGES
from core.files.producer_snapshot import format_producer_snapshot, iter_producer_snapshot, pack_producer
from core.index.transaction_index import AbortedTransaction, iter_transaction_index
from core.inspector.check.file_kind import FileKind
from core.inspector.check.findings import Code, Finding
from core.inspector.check.verify import verify
from core.inspector.dump.side_file_dump import dump_rows
from core.view.files.file_table import FileRow, FileTable, Fit
from core.view.files.partition_files import count_entries, list_files, open_table
from tests.support.damage import write_log
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, SAMPLE_DATA
from tests.support.logs import NOW, append, append_marker, make_batch, open_log
from tests.support.open_files import open_files

CORRUPT = sorted(path for path in GOLDEN.glob("*.corrupt") if path.is_dir())
FOLDERS = [*CORRUPT, SAMPLE_DATA / "partition" / "txn_multisegment-0", SAMPLE_DATA / "open-transaction" / "txn_open-0"]
INDEX, TIME_INDEX = struct.Struct(">ii"), struct.Struct(">qi")


def all_rows(path: Path) -> list[FileRow]:
    table = opened(path)
    try:
        return table.rows(0, table.count)
    finally:
        table.close()


def opened(path: Path) -> FileTable:
    table = open_table(path)
    assert table is not None
    return table


def tables(folder: Path) -> Iterator[FileTable]:
    for file in list_files(folder):
        table = None if file.is_missing else open_table(file.path)
        if table is not None:
            yield table
            table.close()


def unfit(path: Path) -> list[int]:
    """The positions of the entries that do not fit."""
    return [row.position or 0 for row in all_rows(path) if row.comparison.fit is Fit.NO]


def found_at(path: Path, folder: Path | None = None) -> list[int]:
    """The positions that `plog verify` names in a file."""
    found = [finding for finding in verify(folder or path.parent) if finding.path == str(path)]
    return [finding.position for finding in found if finding.position >= 0]


def cells_of(path: Path) -> list[dict[str, Any]]:
    return [dict(row.cells) for row in all_rows(path)]


# --- what is there


def test_the_files_of_a_folder_have_their_kinds_sizes_and_counts() -> None:
    folder = SAMPLE_DATA / "partition" / "txn_multisegment-0"
    listed = list_files(folder)
    assert [file.path.name for file in listed] == sorted(path.name for path in folder.iterdir())
    assert [file.size_bytes for file in listed] == [file.path.stat().st_size for file in listed]
    first = {file.what: count_entries(file).entries for file in listed if file.path.stem == "0" * 20}
    assert first == {"log": None, "offset index": 272 // 8, "time index": 144 // 12, "transaction index": 136 // 34}
    others = {file.path.name: count_entries(file).entries for file in listed if "." not in file.path.name}
    assert others == {"leader-epoch-checkpoint": 1}


def test_files_of_other_kinds_are_named(tmp_path: Path) -> None:
    names = {
        ".lock": "lock of the directory",
        "00000000000000000000.log.deleted": "to be deleted",
        "00000000000000000000.log.swap": "of a compaction that was not finished",
        "00000000000000000007.log.cut-at-9": "cut off by a start",
        "00000000000000000007.index.before-recovery-1": "set aside by a recovery",
        "notes.txt": "",
    }
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "t-0").mkdir()
    assert {file.path.name: file.what for file in list_files(tmp_path)} == names
    assert {count_entries(file).entries for file in list_files(tmp_path)} == {None}
    assert {open_table(tmp_path / name) for name in names} == {None}


def test_each_kind_of_file_but_logs_has_a_table(tmp_path: Path) -> None:
    names = {
        FileKind.LOG: "00000000000000000000.log",
        FileKind.OFFSET_INDEX: "00000000000000000000.index",
        FileKind.TIME_INDEX: "00000000000000000000.timeindex",
        FileKind.TRANSACTION_INDEX: "00000000000000000000.txnindex",
        FileKind.PRODUCER_SNAPSHOT: "00000000000000000000.snapshot",
        FileKind.METADATA_SNAPSHOT: "00000000000000000000-0000000000.checkpoint",
        FileKind.OFFSET_CHECKPOINT: "recovery-point-offset-checkpoint",
        FileKind.LEADER_EPOCHS: "leader-epoch-checkpoint",
        FileKind.DAMAGED_RANGES: DAMAGED_RANGES,
        FileKind.PARTITION_METADATA: "partition.metadata",
        FileKind.META_PROPERTIES: "meta.properties",
        FileKind.CLEAN_SHUTDOWN: ".kafka_cleanshutdown",
    }
    assert set(names) == set(FileKind)
    for kind, name in names.items():
        path = tmp_path / name
        path.touch()
        table = open_table(path)
        assert (table is None) == (kind in (FileKind.LOG, FileKind.METADATA_SNAPSHOT)), kind
        if table is not None:
            table.close()
            assert table.columns, kind
    assert {file.kind for file in list_files(tmp_path)} == set(FileKind)


def test_an_index_that_is_missing_is_listed() -> None:
    folder = GOLDEN / "c_missing_index.corrupt"
    missing = [file for file in list_files(folder) if file.is_missing]
    codes = {Code.INDEX_MISSING, Code.TIME_INDEX_MISSING}
    assert [str(file.path) for file in missing] == [one.path for one in verify(folder) if one.code in codes]
    assert {count_entries(file).problem for file in missing} == {one.message for one in verify(folder)}


@for_each("folder", FOLDERS, ids=lambda path: path.name)
def test_the_entries_are_those_that_the_dump_gives(folder: Path) -> None:
    for table in tables(folder):
        if not table.problems or "position" in table.problems[0]:
            assert [dict(row.cells) for row in table.rows(0, table.count)] == list(
                map(dict, dump_rows(table.path, table.kind))
            )


@for_each("folder", [GOLDEN / "_root", GOLDEN / "_root3"], ids=lambda path: path.name)
def test_the_files_of_a_root_are_tables_too(folder: Path) -> None:
    kinds = set()
    for table in tables(folder):
        kinds.add(table.kind.value)
        rows = table.rows(0, 3)
        assert [list(row.cells) for row in rows] == [list(table.columns)] * len(rows)
        assert not table.problems
    assert kinds == {"offset checkpoint", "meta properties", "clean shutdown"}


# --- the doors agree


@for_each("folder", FOLDERS, ids=lambda path: path.name)
def test_what_does_not_fit_is_a_finding(folder: Path) -> None:
    findings: dict[str, list[Finding]] = {}
    for finding in verify(folder):
        findings.setdefault(finding.path, []).append(finding)
    for table in tables(folder):
        of_file = findings.pop(str(table.path), [])
        rows = table.rows(0, table.count)
        wrong = {row.position for row in rows if row.comparison.fit is Fit.NO}
        assert wrong <= {one.position for one in of_file} or "expected a multiple of 34" in of_file[0].message
        assert {one.position for one in of_file} & {row.position for row in rows if row.position is not None} <= wrong
        assert {one.message for one in of_file if one.position not in wrong} == set(table.problems)
    left = [Path(path).suffix for path in findings]
    assert left in ([], [".log"], [".index", ".timeindex"])
    assert left == [".index", ".timeindex"] or not any(table.problems for table in tables(folder) if left)


def write_small_log(folder: Path, batches: int = 60) -> Path:
    """Writes three segments whose batches are at least an entry each; the last one's end is known by a snapshot."""
    log = open_log(folder, segment_bytes=3000, index_interval_bytes=100)
    for number in range(batches):
        append(log, make_batch(b"v" * (number % 7 * 10 + 1), b"w", timestamp=NOW + 10 * number))
    log.close()
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_log(tmp_path_factory.mktemp("small") / "t-0")


def test_all_entries_of_a_sound_log_fit(small: Path) -> None:
    count = 0
    for table in tables(small):
        rows = table.rows(0, table.count)
        count += len(rows)
        assert {row.comparison.fit for row in rows} <= ({Fit.YES} if table.kind.value.endswith("index") else set(Fit))
    assert count > 60


@for_each("seed", range(24))
def test_an_entry_that_was_changed_does_not_fit_and_is_what_verify_finds(
    seed: int, small: Path, tmp_path: Path
) -> None:
    random = Random(seed)
    folder = Path(shutil.copytree(small, tmp_path / "t-0"))
    path = random.choice([*folder.glob("*.index"), *folder.glob("*.timeindex")])
    entry = INDEX if path.suffix == ".index" else TIME_INDEX
    data = bytearray(path.read_bytes())
    number, field = random.randrange(len(data) // entry.size), random.randrange(2)
    fields = list(entry.unpack_from(data, number * entry.size))
    fields[field] += random.choice([-1, 1, -40, 40, 100_000, -1_000_000])
    entry.pack_into(data, number * entry.size, *fields)
    path.write_bytes(data)
    assert unfit(path) == [number * entry.size]
    assert found_at(path) == [number * entry.size]


@for_each("seed", range(12))
def test_what_does_not_fit_after_a_bit_was_flipped_is_explained_by_a_finding(seed: int, tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    random = Random(seed)
    write_log(folder, random, 40)
    victim = random.choice([path for path in folder.iterdir() if path.stat().st_size > 8])
    data = bytearray(victim.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    victim.write_bytes(data)
    paths = {finding.path for finding in verify(folder)}
    for table in tables(folder):
        if any(row.comparison.fit is Fit.NO for row in table.rows(0, table.count)):
            assert paths & {str(table.path), str(victim), str(victim.with_suffix(".log"))}


def test_entries_after_the_logs_end_may_be_left_by_a_crash(tmp_path: Path) -> None:
    folder = write_small_log(tmp_path / "t-0", batches=20)
    for snapshot in folder.glob("*.snapshot"):
        snapshot.unlink()
    (last,) = folder.glob("*.log")
    entries = list(INDEX.iter_unpack(last.with_suffix(".index").read_bytes()))
    assert len(entries) > 6
    with last.open("r+b") as file:
        file.truncate(entries[3][1])
    for suffix in (".index", ".timeindex"):
        fits = [row.comparison.fit for row in all_rows(last.with_suffix(suffix))]
        assert fits[:3] == [Fit.YES] * 3
        assert set(fits[3:]) == {Fit.UNKNOWN}
        assert not found_at(last.with_suffix(suffix))


def test_an_index_whose_log_is_gone_is_shown_without_a_comparison(small: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(small, tmp_path / "t-0"))
    log = min(folder.glob("*.log"))
    log.unlink()
    table = opened(log.with_suffix(".index"))
    assert table.problems == ["there is no .log beside it that can be read"]
    assert {row.comparison.fit for row in table.rows(0, 5)} == {Fit.UNKNOWN}
    table.close()


def test_rows_lead_to_the_batches_of_the_log(small: Path) -> None:
    for path in small.glob("*.index"):
        for row in all_rows(path):
            place = row.comparison.place
            assert place is not None
            assert place == (path.with_suffix(".log"), row.cells["position"])
    for path in small.glob("*.timeindex"):
        data = path.with_suffix(".log").read_bytes()
        for row in all_rows(path):
            place = row.comparison.place
            assert place is not None
            first, delta = (
                struct.unpack_from(">q", data, place.position)[0],
                struct.unpack_from(">i", data, place.position + 23)[0],
            )
            assert first <= row.cells["offset"] <= first + delta
            assert struct.unpack_from(">q", data, place.position + 35)[0] == row.cells["timestamp"]


# --- large indexes


class CountedReads:
    """Counts how often files are read, and how much."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = self.bytes = 0
        read_at = File.read_at

        def count(file: File, size: int, position: int) -> bytes:
            data = read_at(file, size, position)
            self.reads += 1
            self.bytes += len(data)
            return data

        monkeypatch.setattr(File, "read_at", count)


def test_a_page_of_an_index_of_a_million_entries_takes_few_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, batch = 1_000_000, make_batch(b"v")
    folder = tmp_path / "t-0"
    folder.mkdir()
    log = folder / f"{0:020d}.log"
    data = bytearray(batch.buffer[batch.start : batch.start + batch.size_bytes])
    with log.open("wb") as file:
        for number in range(300):
            struct.pack_into(">q", data, 0, number)
            file.seek(number * len(data))
            file.write(data)
        for number in range(500_000, 500_300):
            struct.pack_into(">q", data, 0, number)
            file.seek(number * len(data))
            file.write(data)
        file.truncate(count * len(data))
    entries = b"".join(INDEX.pack(number, number * len(data)) for number in range(count))
    log.with_suffix(".index").write_bytes(entries)
    reads = CountedReads(monkeypatch)
    table = opened(log.with_suffix(".index"))
    assert table.count == count
    rows = table.rows(500_100, 500_140)
    assert [row.cells["offset"] for row in rows] == list(range(500_100, 500_140))
    assert {row.comparison.fit for row in rows} == {Fit.YES}
    assert reads.reads < 1000
    assert reads.bytes < 1_000_000
    assert {row.comparison.fit for row in table.rows(700_000, 700_040)} == {Fit.NO}  # zeros are no batches
    table.close()


# --- producers


def sample(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLE_DATA / "partition" / "txn_multisegment-0", tmp_path / "txn_multisegment-0"))


@for_each("field", ["producer_epoch", "last_sequence", "last_offset", "current_txn_first_offset"])
def test_a_producer_that_does_not_fit_is_a_finding(field: str, tmp_path: Path) -> None:
    folder = sample(tmp_path)
    path = folder / f"{145:020d}.snapshot"
    entries = list(iter_producer_snapshot(path))
    entries[1] = entries[1]._replace(**{field: getattr(entries[1], field) + 1})
    packed = bytearray(46 * len(entries))
    for number, entry in enumerate(entries):
        pack_producer(entry, packed, 46 * number)
    path.write_bytes(format_producer_snapshot(packed))
    rows = all_rows(path)
    assert [row.comparison.fit for row in rows] == [Fit.YES, Fit.NO]
    messages = [finding.message for finding in verify(folder)]
    assert messages == [f"producer 43: {rows[1].comparison.log}"]
    assert rows[1].comparison.place is not None or field == "last_offset"


@for_each("field", AbortedTransaction._fields)
@for_each("is_small", [True, False])
def test_an_aborted_transaction_that_does_not_fit_is_a_finding(
    field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_small: bool
) -> None:
    if not is_small:
        monkeypatch.setattr(core.view.files.producer_tables, "MOST_BYTES", 10)
    folder = sample(tmp_path)
    path = folder / f"{145:020d}.txnindex"
    entries = list(iter_transaction_index(path))
    entries[1] = entries[1]._replace(**{field: getattr(entries[1], field) - 1})
    path.write_bytes(b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries))
    fits = [row.comparison.fit for row in all_rows(path)]
    is_seen = is_small or field != "last_stable_offset"  # which takes the whole log to know
    assert fits == [Fit.YES, Fit.NO if is_seen else Fit.YES, Fit.YES, Fit.YES]
    assert 34 in found_at(path)


def test_aborted_transactions_that_do_not_rise_are_a_finding(tmp_path: Path) -> None:
    folder = sample(tmp_path)
    path = folder / f"{145:020d}.txnindex"
    data = path.read_bytes()
    path.write_bytes(data[:34] + data[:34] + data[68:])
    assert unfit(path) == [34] == found_at(path)


def test_producers_of_a_large_log_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.view.files.producer_tables, "MOST_BYTES", 10)
    rows = all_rows(sample(tmp_path) / f"{145:020d}.snapshot")
    assert {row.comparison.fit for row in rows} == {Fit.UNKNOWN}
    assert "plog verify" in rows[0].comparison.log


def test_the_producers_before_damage_are_not_compared(tmp_path: Path) -> None:
    folder = sample(tmp_path)
    with (folder / f"{0:020d}.log").open("r+b") as file:
        file.seek(5000)
        file.write(b"\xff\xff\xff")
    rows = all_rows(folder / f"{145:020d}.snapshot")
    assert [row.comparison.fit for row in rows] == [Fit.UNKNOWN] * 2


# --- checkpoints


def epochs_log(tmp_path: Path) -> Path:
    folder = tmp_path / "t-0"
    log = open_log(folder, segment_bytes=500)
    for epoch in (0, 0, 2, 2, 2, 5):
        append(log, make_batch(b"a", b"b", b"c"), leader_epoch=epoch)
    log.close()
    return folder


@for_each(
    "entries, wrong",
    [
        ([(0, 0), (2, 6), (5, 15)], []),
        ([(0, 0), (2, 6), (5, 15), (6, 18)], []),
        ([(0, 0), (2, 9), (5, 15)], [0]),
        ([(0, 0), (2, 3), (5, 15)], [1]),
        ([(0, 0), (5, 15)], [0]),
        ([(0, 0), (3, 6), (5, 15)], [1]),
        ([(0, 0), (2, 6)], [1]),
        ([(0, 0), (2, 6), (5, 15), (6, 30)], [3]),
    ],
)
def test_leader_epochs_that_do_not_fit_are_a_finding(
    entries: list[tuple[int, int]], wrong: list[int], tmp_path: Path
) -> None:
    folder = epochs_log(tmp_path)
    path = folder / "leader-epoch-checkpoint"
    path.write_text("\n".join(["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]) + "\n")
    assert cells_of(path) == [{"epoch": epoch, "start_offset": start} for epoch, start in entries]
    assert [row.number for row in all_rows(path) if row.comparison.fit is Fit.NO] == wrong
    codes = {finding.code for finding in verify(folder)}
    assert bool(codes & {Code.LEADER_EPOCHS_MISMATCH, Code.LOG_SHORT}) == bool(wrong)


def test_an_empty_epoch_checkpoint_of_an_empty_log_is_no_problem(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    open_log(folder).close()
    (folder / "leader-epoch-checkpoint").write_bytes(b"")
    table = opened(folder / "leader-epoch-checkpoint")
    assert (table.count, table.problems) == (0, [])
    assert not list(verify(folder))
    log = open_log(folder)
    append(log, make_batch(b"a"))
    log.close()
    (folder / "leader-epoch-checkpoint").write_bytes(b"")
    assert opened(folder / "leader-epoch-checkpoint").problems
    assert [finding.code for finding in verify(folder)] == [Code.CHECKPOINT_CORRUPT]


def data_directory(tmp_path: Path, **checkpoints: int) -> Path:
    """Makes a directory that was stopped cleanly, with a partition of 18 records."""
    epochs_log(tmp_path)
    (tmp_path / "meta.properties").write_text(
        "version=1\nnode.id=1\ncluster.id=x\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    right = {"recovery_point": 18, "replication": 18, "log_start": 0, "cleaner": 3}
    for name, offset in (right | checkpoints).items():
        (tmp_path / f"{name.replace('_', '-')}-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")
    return tmp_path


@for_each(
    "name, offset, fit",
    [
        ("recovery_point", 17, Fit.YES),
        ("recovery_point", 19, Fit.NO),
        ("recovery_point", (1 << 63) - 1, Fit.UNKNOWN),
        ("replication", 12, Fit.YES),
        ("replication", 40, Fit.NO),
        ("log_start", 7, Fit.NO),
        ("log_start", 700, Fit.NO),
        ("cleaner", 19, Fit.UNKNOWN),
    ],
)
def test_an_offset_checkpoint_that_does_not_fit_is_a_finding(name: str, offset: int, fit: Fit, tmp_path: Path) -> None:
    root = data_directory(tmp_path, **{name: offset})
    path = root / f"{name.replace('_', '-')}-offset-checkpoint"
    row = all_rows(path)[0]
    assert (row.cells, row.comparison.fit) == ({"topic": "t", "partition": 0, "offset": offset}, fit)
    assert "begins at offset 0 and ends at 18" in row.comparison.log
    codes = {finding.code for finding in verify(root)}
    expected = {Code.LOG_SHORT, Code.LOG_START_WRONG, Code.HIGH_WATERMARK_WRONG}
    assert (fit is Fit.NO) == bool(codes & expected)


def test_a_partition_that_is_not_there_is_not_compared(tmp_path: Path) -> None:
    root = data_directory(tmp_path)
    shutil.rmtree(root / "t-0")
    row = all_rows(root / "replication-offset-checkpoint")[0]
    assert (row.comparison.fit, row.comparison.log) == (Fit.UNKNOWN, "there is no folder t-0")


def test_a_topic_id_is_compared_with_those_of_other_partitions(tmp_path: Path) -> None:
    for number in range(3):
        log = open_log(tmp_path / f"t-{number}")
        append(log, make_batch(b"a"))
        log.close()
        write_partition_metadata(tmp_path / f"t-{number}", bytes([1] * 16), FileSystem())
    path = tmp_path / "t-2" / "partition.metadata"
    assert [row.comparison.fit for row in all_rows(path)] == [Fit.YES]
    write_partition_metadata(tmp_path / "t-2", bytes([2] * 16), FileSystem())
    assert [row.comparison.fit for row in all_rows(path)] == [Fit.NO]
    assert [(one.code, one.path) for one in verify(tmp_path)] == [(Code.TOPIC_ID_MISMATCH, str(path))]


# --- what can't be read


def test_a_file_that_goes_meanwhile_is_an_access_error(small: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(small, tmp_path / "t-0"))
    path = min(folder.glob("*.index"))
    path.unlink()
    with pytest.raises(AccessError):
        open_table(path)
    shutil.rmtree(folder)
    with pytest.raises(AccessError):
        list_files(folder)


def test_a_folder_under_an_indexs_name_is_listed_and_refused(small: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(small, tmp_path / "t-0"))
    path = min(folder.glob("*.index"))
    path.unlink()
    path.mkdir()
    listed = {file.path: file for file in list_files(folder)}
    assert count_entries(listed[path]).problem == f"{path} is no regular file"
    with pytest.raises(AccessError):
        open_table(path)


def test_a_small_file_that_does_not_parse_says_why(tmp_path: Path) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    path.write_text("0\n2\nt 0 5\n")
    table = opened(path)
    assert (table.count, table.problems) == (0, ["line 2: says 2 entries, 1 follow"])
    assert [finding.message for finding in verify(path)] == table.problems


def test_nothing_is_left_open(small: Path) -> None:
    before = open_files()
    for table in tables(small):
        table.rows(0, 100)
    assert open_files() == before


def test_markers_of_an_open_transaction_fit(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    log = open_log(folder)
    append(log, make_batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    append_marker(log, 7, is_commit=False)
    append(log, make_batch(b"b", producer_id=7, producer_epoch=0, base_sequence=1, is_transactional=True))
    log.close()
    assert [row.comparison.fit for row in all_rows(folder / f"{0:020d}.txnindex")] == [Fit.YES]
    rows = all_rows(max(folder.glob("*.snapshot")))
    assert [row.comparison.fit for row in rows] == [Fit.YES]
    assert "open transaction from offset 2" in rows[0].comparison.log
