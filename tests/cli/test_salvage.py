"""`plog recover --salvage-records`: what is read of a damaged batch, what is said of it, and what is never touched."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest

from core.records.compression import CompressionType
from core.records.legacy_message_set import build_message, build_wrapper
from core.records.record import Record
from core.records.record_batch_builder import batch_of
from tests.cli.conftest import ok
from tests.support.damage import places
from tests.support.for_each import for_each
from tests.support.logs import NOW, append, fingerprint, make_batch, open_log
from tests.support.server import call_plog

LOG = "00000000000000000000.log"
SECTOR = 512


def write_batches(root: Path, *batches: list[bytes], **fields: object) -> Path:
    """A log of the topic t with these values, one batch for each list."""
    log = open_log(root / "t-0")
    for values in batches:
        append(log, make_batch(*values, **fields))
    log.close()
    return root / "t-0" / LOG


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def salvage(root: Path, *options: str, code: int = 1) -> tuple[list[dict[str, Any]], str]:
    """The envelopes, and what was said."""
    file = root.parent / "salvaged.ndjson"
    file.unlink(missing_ok=True)
    done = call_plog("recover", str(root), "--salvage-records", str(file), *options)
    assert done.returncode == code, done.stderr
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in lines], done.stderr.decode()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_one_sector_does_not_cost_1508_records(root: Path) -> None:
    random = Random(1)
    values = [random.randbytes(150).hex().encode() for _ in range(1508)]
    path = write_batches(root, [b"before"], values, [b"after"])
    place = places(root / "t-0")[1]
    assert place.end - place.position > 450_000
    start = place.position + 250_000
    overwrite(path, start, bytes(SECTOR))
    before = fingerprint(root)

    envelopes, told = salvage(root)
    assert fingerprint(root) == before
    lost = {n for n, value in enumerate(values) if value.decode() not in {one["value"] for one in envelopes}}
    assert len(lost) in (2, 3)  # records of some 310 bytes, of which a sector has parts of
    assert f"{1508 - len(lost):,} of 1,508 records in damage, none of them proven" in told
    for one in envelopes:
        number = one["offset"] - 1
        assert one["value"] == values[number].decode()
        assert (one["topic"], one["partition"], one["timestamp"], one["key"]) == ("t", 0, NOW + number, "k")
        assert one["unproven"]
        where = one["salvaged"]
        assert where["file"] == LOG
        assert where["batch"] == [place.position, place.end]
        ((first, end),) = where["damage"]
        assert first <= start
        assert end >= start + SECTOR
        stored = path.read_bytes()[where["position"] : where["end_position"]]
        assert values[number] in stored

    other = ("again", "--data-dir", str(root.parent / "other"))
    ok("topic", "create", *other, "--set", "retention.ms=-1")  # the records are of 2023
    ok("produce", *other, str(root.parent / "salvaged.ndjson"), "--format", "envelope")
    again = ok("consume", *other).split()
    assert again == [value for n, value in enumerate(values) if n not in lost]


def test_a_file_that_is_there_stays(root: Path) -> None:
    path = write_batches(root, [b"a" * 50, b"b" * 50])
    overwrite(path, 70, b"#!?" * 5)
    file = root.parent / "there.ndjson"
    file.write_text("mine")
    done = call_plog("recover", str(root), "--salvage-records", str(file), "--apply")
    assert done.returncode == 2
    assert b"there.ndjson is there already" in done.stderr
    assert file.read_text() == "mine"
    assert not list(root.glob("t-0/*.before-recovery-*"))
    for other in ("--undo", "--like-kafka"):
        assert call_plog("recover", str(root), "--salvage-records", str(root / "new"), other).returncode == 2


def test_a_sound_log_gives_no_file(root: Path) -> None:
    write_batches(root, [b"a"])
    assert salvage(root, code=0) == ([], "nothing to recover; records were not decoded, plog verify --deep does that\n")


def test_records_are_read_before_the_recovery_takes_them_out(root: Path) -> None:
    path = write_batches(root, [b"%d" % n * 20 for n in range(50)], [b"after"])
    overwrite(path, 300, b"#!?" * 5)
    named_twice, _ = salvage(root, str(path.parent))
    envelopes, _ = salvage(root, "--apply", code=0)
    assert named_twice == envelopes
    assert len(envelopes) >= 48
    assert {one["offset"] for one in envelopes} <= set(range(50))
    assert salvage(root, code=0)[0] == []


def test_the_offsets_of_a_batch_without_its_header_are_those_before_the_next_one(root: Path) -> None:
    values = [b"%d" % n * 40 for n in range(60)]
    path = write_batches(root, [b"before"], values, [b"after"])
    overwrite(path, places(root / "t-0")[1].position, bytes(SECTOR))
    envelopes, _ = salvage(root)
    assert 40 < len(envelopes) < 60
    for one in envelopes:
        assert one["value"] == values[one["offset"] - 1].decode()
        assert (one["timestamp"], one["leader_epoch"]) == (None, None)


def test_a_flipped_bit_leaves_all_records_proven(root: Path) -> None:
    path = write_batches(root, [b"a" * 50, b"b" * 50], [b"after"])
    data = path.read_bytes()
    overwrite(path, 100, bytes([data[100] ^ 4]))
    envelopes, told = salvage(root)
    assert [(one["offset"], one["value"], one["unproven"]) for one in envelopes] == [
        (0, "a" * 50, False),
        (1, "b" * 50, False),
    ]
    assert "2 of 2 records in damage, 2 of them proven by a checksum" in told
    assert salvage(root, "--fix-bits")[0] == []  # the log keeps them


def test_a_torn_tail_is_read_to_where_it_ends(root: Path) -> None:
    path = write_batches(root, [b"before"], [b"%d" % n * 40 for n in range(60)])
    path.write_bytes(path.read_bytes()[:-700])
    envelopes, _ = salvage(root)
    assert 40 < len(envelopes) < 60
    assert [one["offset"] for one in envelopes] == list(range(1, len(envelopes) + 1))


@for_each("codec", [codec for codec in CompressionType if codec is not CompressionType.NONE])
def test_a_compressed_batch_is_read_up_to_the_hole(tmp_path: Path, codec: CompressionType) -> None:
    root, random = tmp_path / codec.text, Random(7)
    values = [random.randbytes(200).hex().encode() for _ in range(1500)]
    path = write_batches(root, values, [b"after"], compression=codec)
    place = places(root / "t-0")[0]
    overwrite(path, place.position + (place.end - place.position) * 4 // 5, bytes(SECTOR))
    envelopes, _ = salvage(root)
    assert len(envelopes) > 300, codec
    assert [one["value"].encode() for one in envelopes] == values[: len(envelopes)]
    assert all(one["unproven"] for one in envelopes)
    overwrite(path, place.position + 300, b"#!?" * 50)  # which shows nowhere but in what comes out
    overwrite(path, place.position + (place.end - place.position) * 4 // 5, random.randbytes(SECTOR))
    assert salvage(root)[0] == []


@for_each("magic", [0, 1])
def test_messages_of_old_formats_are_proven_one_by_one(tmp_path: Path, magic: int) -> None:
    folder = tmp_path / str(magic) / "t-0"
    folder.mkdir(parents=True)
    random = Random(8)
    values = [random.randbytes(200).hex().encode() for _ in range(1000)]
    inside = [Record(n, NOW + n if magic else -1, None, value) for n, value in enumerate(values)]
    wrapper = bytearray(build_wrapper(inside, magic, CompressionType.GZIP))
    start = len(wrapper) * 4 // 5
    wrapper[start : start + SECTOR] = random.randbytes(SECTOR)
    plain = build_message(Record(1000, NOW, None, b"p" * 100), magic, 0)
    torn = bytearray(build_message(Record(1001, NOW, None, b"q" * 100), magic, 0))
    torn[-50:-40] = b"#!?#!?#!?#"
    (folder / LOG).write_bytes(
        bytes(wrapper) + plain + bytes(torn) + plain.replace(struct.pack(">q", 1000), struct.pack(">q", 1002), 1)
    )
    envelopes, _ = salvage(folder.parent)
    proven = [one for one in envelopes if not one["unproven"]]
    assert len(proven) > 300
    assert [one["value"].encode() for one in proven] == values[: len(proven)]
    assert [one["offset"] for one in proven] == ([None] * len(proven) if magic else list(range(len(proven))))
    assert [one["offset"] for one in envelopes if one["unproven"]] == [1001]


def test_batches_of_transactions_say_so_and_markers_are_no_records(root: Path) -> None:
    data = batch_of(
        [Record(0, NOW, None, b"x" * 90), Record(1, NOW, None, b"y" * 90)],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    (root / "t-0").mkdir(parents=True)
    (root / "t-0" / LOG).write_bytes(data[:100] + b"#!?" + data[103:])
    envelopes, _ = salvage(root)
    assert [one["salvaged"]["is_transactional"] for one in envelopes] == [True, True]
