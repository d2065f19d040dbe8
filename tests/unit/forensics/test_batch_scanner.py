"""A walk covers a file: batches and damage, without overlap, whatever is done to it."""

from __future__ import annotations

import re
import resource
import struct
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.forensics.batch_scanner import BatchScanner
from core.forensics.damage import Damage, DamageKind
from tests.support.bad_disk import PAGE_BYTES, break_disk
from tests.support.crafted import batch, message
from tests.support.damage import places
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.logs import append, make_batch, open_log

FILES = sorted(
    path for name in ("codec_zstd_java", "txn_interleaved", "v1_gzip_java", "mixed_v0_v1_v2", "compacted_txn")
    for path in (GOLDEN / name).glob("*.log") if path.stat().st_size
)  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.parent.name)
@given(seed=st.integers(0, 2**32), read_bytes=st.sampled_from((1, 200, 1000, 1 << 20)))
@example(seed=207, read_bytes=1 << 20)  # a length that has no room for a header
def test_every_byte_is_told_of_once_batch_by_batch_and_in_pages(
    path: Path, tmp_path_factory: pytest.TempPathFactory, seed: int, read_bytes: int
) -> None:
    random = Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(random.randint(0, 5)):
        position = random.randrange(len(data))
        data[position : position + random.choice((1, 1, 8, 600))] = random.randbytes(random.choice((1, 1, 8, 600)))
    copy = tmp_path_factory.getbasetemp() / "pages" / path.name
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(data)
    found: list[list[tuple[int, int]]] = []
    for is_paged in (False, True):
        walk = BatchScanner(copy, int(path.stem), **({"read_bytes": read_bytes} if is_paged else {}))
        pages = walk.pages_from(0) if is_paged else [walk]
        items = [[page] if isinstance(page, Damage) else list(page) for page in pages]
        assert all(items), "no page is empty"
        found.append([
            (item.position, item.end_position if isinstance(item, Damage) else item.position + item.size_bytes)
            for page in items
            for item in page
        ])  # fmt: skip
        walk.close()
    assert found[0] == found[1]
    assert [start for start, _ in found[0]] == [0, *(end for _, end in found[0])][: len(found[0])]
    assert found[0][-1][1] == len(data)


@pytest.mark.parametrize("is_paged", [False, True], ids=["batch by batch", "in pages"])
def test_old_messages_are_not_looked_for_after_a_batch_of_magic_2(tmp_path: Path, *, is_paged: bool) -> None:
    """A value may hold one, somebody's copy of an old log; so it says nothing if a batch of magic 2 came before."""
    batch, damaged = make_batch(b"x"), b"\xff" * 40 + message(1, b"k", b"v", 1)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(bytes(batch.buffer) + damaged)
    walk = BatchScanner(path)
    found = list(walk.pages_from(0) if is_paged else walk)
    walk.close()
    assert isinstance(found[-1], Damage)
    assert (found[-1].position, found[-1].end_position) == (batch.size_bytes, batch.size_bytes + len(damaged))


def test_after_a_wrong_byte_a_batch_that_the_cleaner_emptied_is_found_at_the_files_end(tmp_path: Path) -> None:
    """It is a header without a record, as the cleaner keeps the last batch of a producer."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(bytes(1) + batch(7, [], last_offset_delta=0))
    scanner = BatchScanner(path, 0)
    damage, emptied = scanner
    assert isinstance(damage, Damage)
    assert (damage.end_position, emptied.position) == (1, 1)
    scanner.close()


def test_a_huge_claim_costs_no_memory(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for _ in range(3):
        append(log, make_batch(b"x"))
    log.close()
    second = places(tmp_path / "t-0")[1]
    with second.path.open("r+b") as file:
        file.seek(second.position + 8)
        file.write(struct.pack(">i", 300_000_000))
        file.truncate(400 << 20)  # zeros, which take no room
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    walk = BatchScanner(second.path)
    items = list(walk)
    walk.close()
    assert [item.kind for item in items if isinstance(item, Damage)] == [DamageKind.GARBAGE, DamageKind.ZEROED]
    assert len(items) == 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def damage_of(path: Path, batches: list[bytes]) -> Damage:
    """The only one of a file of these batches."""
    path.write_bytes(b"".join(batches))
    scanner = BatchScanner(path, 0)
    (damage,) = [item for item in scanner if isinstance(item, Damage)]
    scanner.close()
    return damage


@for_each(
    "start, end, field",
    [
        (17, 21, "crc"),
        (21, 23, "attributes"),
        (23, 27, "last offset delta"),
        (27, 35, "base timestamp"),
        (35, 43, "max timestamp"),
        (43, 51, "producer id"),
        (51, 53, "producer epoch"),
        (53, 57, "base sequence"),
        (57, 61, "record count"),
        (61, 64, "records"),
    ],
)
def test_a_flipped_bit_is_reported_with_its_field(tmp_path: Path, start: int, end: int, field: str) -> None:
    """In its first byte and its last one. The checksum does not cover the fields before it."""
    before, sound, after = (batch(offset, [(b"key", b"value")]) for offset in range(3))
    for at in (start, end - 1):
        flipped = sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :]
        damage = damage_of(tmp_path / f"{0:020d}.log", [before, flipped, after])
        assert damage.message.endswith(f"bit 0 of the byte at position {len(before) + at} is flipped (in the {field})")


def test_a_flipped_bit_of_an_old_message_is_reported(tmp_path: Path) -> None:
    before, sound, after = (message(offset, b"key", b"value", 1) for offset in range(3))
    damage = damage_of(tmp_path / f"{0:020d}.log", [before, sound[:-1] + bytes([sound[-1] ^ 1]), after])
    at = len(before) + len(sound) - 1
    assert damage.message.endswith(f"bit 0 of the byte at position {at} is flipped (in the message)")


def test_the_first_zeros_as_long_as_a_sector_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever they are in the pieces that are read, and not shorter ones."""
    piece, random = 1000, Random(5)
    monkeypatch.setattr("core.forensics.batch_scanner._READ_BYTES", piece)
    before, sound = (batch(offset, [(None, random.randbytes(4 * piece))]) for offset in range(2))
    places = [(start, start + size) for start in (62, piece - 1, piece, 2 * piece - 100) for size in (511, 512, 1500)]
    for start, end in [*places, (len(sound) - 600, len(sound))]:
        zeroed = sound[:start] + bytes(end - start) + sound[end:]
        run = re.search(rb"\0{512,}", zeroed)
        expected = f": bytes {len(before) + run.start()} to {len(before) + run.end() - 1} are zeros" if run else ""
        damage = damage_of(tmp_path / f"{0:020d}.log", [before, zeroed])
        assert damage.message.partition(", computed ")[2][8:] == expected


@for_each("pages, more", [((1,), ""), ((1, 3), ", and 1 more such"), ((1, 3, 5), ", and 2 more such")])
def test_parts_that_the_disk_refuses_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: tuple[int, ...], more: str
) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(batch(0, [(None, Random(6).randbytes(30_000))]))
    with monkeypatch.context() as patch:
        break_disk(patch, {path: [page * PAGE_BYTES for page in pages]})
        scanner = BatchScanner(path, 0)
        (damage,) = scanner
        scanner.close()
    assert isinstance(damage, Damage)
    assert damage.message == f"bytes 4096 to 8191 could not be read: input/output error (errno 5){more}"
