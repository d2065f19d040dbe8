"""`dump-segment --format kafka` prints what Kafka's own DumpLogSegments prints, byte for byte, of every fixture."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from core.inspector.check.file_kind import FileKind
from core.inspector.dump.dump_options import DumpOptions
from core.inspector.dump.file_dump import find_dumps
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.logs import append, make_batch, open_log
from tests.support.oracle import requires_kafka, run_tool

DECODED = ("__cluster_metadata", "__consumer_offsets", "__transaction_state")  # by plog without being told
TEXTS = [
    path
    for path in sorted(GOLDEN.glob("*.dump.txt"))
    if ".corrupt." not in path.name and not path.name.startswith(DECODED)
]
UNREAD_BY_KAFKA = (FileKind.LEADER_EPOCHS, FileKind.PARTITION_METADATA)


def dump(directory: str, *, with_records: bool) -> bytes:
    options = DumpOptions(with_records=with_records, with_data=with_records, shows_secrets=True)
    dumps = find_dumps(Path(directory), options)
    return b"".join(b"".join(d.kafka_text()) for d in dumps if d.kind not in UNREAD_BY_KAFKA)


@for_each("text", TEXTS, ids=lambda p: p.name)
def test_the_text_is_kafkas(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = text.name.removesuffix(".dump.txt")
    monkeypatch.chdir(GOLDEN)
    expected = text.read_bytes()
    assert dump(name, with_records=b"\n| offset" in expected) == expected


def test_metadata_records_are_decoded_as_kafka_decodes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)
    found = dump("__cluster_metadata-0", with_records=True)
    assert (GOLDEN / "__cluster_metadata-0.decoded.txt").read_bytes() in found
    snapshot = (GOLDEN / "__cluster_metadata-0.dump.txt").read_bytes().partition(b"Dumping __cluster_metadata-0/")[2]
    snapshot = snapshot[snapshot.index(b"Dumping __cluster_metadata-0/00000000000000000275-0000000001.checkpoint") :]
    assert snapshot[: snapshot.index(b".snapshot\n")] in found


@for_each("name", [*(f"__consumer_offsets-{n}" for n in range(3)), *(f"__transaction_state-{n}" for n in range(2))])
def test_coordinators_records_are_decoded_as_kafka_decodes_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with --offsets-decoder and --transaction-log-decoder, which need not be given."""
    monkeypatch.chdir(GOLDEN)
    assert (GOLDEN / f"{name}.decoded.txt").read_bytes() in dump(name, with_records=True)


DAMAGED = {
    "c_torn_tail": b"Found 76 invalid bytes at the end of 00000000000000000000.log\n",
    "c_torn_header": b"Found 11 invalid bytes at the end of 00000000000000000000.log\n",
    "c_bitflip_length": b"Found 1896 invalid bytes at the end of 00000000000000000000.log\n",
}


@for_each("name", DAMAGED)
def test_a_damaged_log_is_printed_as_kafka_prints_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)
    options = DumpOptions(with_records=True, with_data=True)
    log = Path(f"{name}.corrupt/00000000000000000000.log")
    found = b"".join(next(iter(find_dumps(log, options))).kafka_text())
    assert found.endswith(DAMAGED[name])
    expected = (GOLDEN / f"{name}.corrupt.dump.txt").read_bytes()
    assert found in expected


def test_what_is_no_record_of_a_group_is_shown_as_it_is(tmp_path: Path) -> None:
    log = open_log(tmp_path / "__consumer_offsets-0")
    append(log, make_batch(b"value", key=b"no group"))
    append(log, make_batch(b"\0\3", key=b"\0\2\0\1g"))
    log.close()
    found = dump(str(tmp_path / "__consumer_offsets-0"), with_records=True)
    assert b" key: no group payload: value\n" in found
    assert b" key: \0\2\0\1g payload: \0\3\n" in found


# --- damage of our own

SEGMENT = "00000000000000000118"
BATCHES = [0, 688, 1194, 1880, 2471]
"""Where the first batches of the segment begin, as its index says."""


def damaged_folder(folder: Path, suffix: str, position: int, data: bytes) -> Path:
    """A copy of a segment of real Kafka's with other bytes at a position of one of its files; that file."""
    folder.mkdir()
    for name in (f"{SEGMENT}.log", f"{SEGMENT}.index", f"{SEGMENT}.timeindex"):
        content = bytearray((GOLDEN / "multisegment" / name).read_bytes())
        if name.endswith(suffix):
            content[position : position + len(data)] = data
        (folder / name).write_bytes(content)
    return folder / f"{SEGMENT}{suffix}"


def text_of(path: Path, *, with_data: bool = True) -> list[str]:
    options = DumpOptions(with_records=with_data, with_data=with_data)
    return b"".join(next(iter(find_dumps(path, options))).kafka_text()).decode().splitlines()[1:]


def test_a_record_at_offset_minus_one_is_printed(tmp_path: Path) -> None:
    log = damaged_folder(tmp_path / "d", ".log", 688, struct.pack(">q", -1))
    lines = text_of(log)
    assert sum(line.startswith("| offset: -1 ") for line in lines) == 1
    assert len(lines) == len(text_of(GOLDEN / "multisegment" / f"{SEGMENT}.log"))


@pytest.mark.parametrize(("suffix", "size"), [(".index", 8), (".timeindex", 12)])
def test_the_first_entry_is_printed_though_it_is_zero(suffix: str, size: int, tmp_path: Path) -> None:
    path = damaged_folder(tmp_path / "d", suffix, 0, bytes(size))
    first = f"offset: {int(SEGMENT)} position: 0" if suffix == ".index" else f"timestamp: 0 offset: {int(SEGMENT)}"
    whole = text_of(GOLDEN / "multisegment" / f"{SEGMENT}{suffix}")
    assert text_of(path) == [first, *whole[1:]]
    path.write_bytes(bytes(size))
    assert text_of(path) == [first]
    path.write_bytes(b"")
    assert text_of(path) == ([f"{path} is empty."] if suffix == ".index" else [])


def test_a_zero_entry_behind_the_first_ends_the_text(tmp_path: Path) -> None:
    path = damaged_folder(tmp_path / "d", ".index", 16, bytes(8))
    assert text_of(path) == text_of(GOLDEN / "multisegment" / f"{SEGMENT}.index")[:2]


def test_garbage_in_a_header_is_printed_where_the_frame_fits(tmp_path: Path) -> None:
    garbage = struct.pack(">hiqqqhii", 0, 7, 5, 6, 9, 3, 1, 2)
    log = damaged_folder(tmp_path / "d", ".log", 688 + 21, garbage)
    lines = text_of(log, with_data=False)
    assert lines[2].startswith(
        "baseOffset: 124 lastOffset: 131 count: 2 baseSequence: 1 lastSequence: 8 producerId: 9 producerEpoch: 3 "
    )
    assert lines[2].endswith(" isvalid: false")
    assert len(lines) == len(text_of(GOLDEN / "multisegment" / f"{SEGMENT}.log", with_data=False))


def test_records_of_a_batch_without_a_sound_sequence_have_none(tmp_path: Path) -> None:
    """DefaultRecord.readFrom: a base sequence below 0 gives each record NO_SEQUENCE."""
    log = damaged_folder(tmp_path / "d", ".log", 688 + 53, struct.pack(">i", -5))
    whole = text_of(GOLDEN / "multisegment" / f"{SEGMENT}.log")
    start = next(n for n, line in enumerate(whole) if " position: 688 " in line)
    assert " baseSequence: -5 " in text_of(log)[start]
    assert " sequence: -1 " in text_of(log)[start + 1]


@requires_kafka
def test_the_text_of_damage_is_kafkas(tmp_path: Path) -> None:
    """But where Kafka's tool ends with an exception: codecs and magics that there are none of."""
    rnd = random.Random(27)
    damage: list[tuple[str, int, bytes]] = []
    for position in BATCHES[1:]:
        attributes = struct.pack(">h", rnd.randrange(1 << 8) << 3)  # any but the codec's bits
        damage += [
            (".log", position, struct.pack(">q", -1)),
            (".log", position, rnd.randbytes(8)),
            (".log", position + 21, attributes + rnd.randbytes(38)),
            (".log", position + 8, struct.pack(">i", 1 << 20)),
            (".log", position + 16, bytes([rnd.randrange(3, 128)])),
        ]
    damage += [(".index", 0, bytes(8)), (".index", 16, bytes(8)), (".timeindex", 0, bytes(12))]
    paths = [damaged_folder(tmp_path / f"{number}", *where) for number, where in enumerate(damage)]
    done = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(map(str, paths)))
    assert b"Exception" not in done.stderr
    found = [b"".join(d.kafka_text()) for path in paths for d in find_dumps(path, DumpOptions())]
    assert b"".join(found) == done.stdout
