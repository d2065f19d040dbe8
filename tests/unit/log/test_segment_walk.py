"""A walk covers a file: batches and damage, without overlap, whatever is done to it."""

from __future__ import annotations

import resource
import struct
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.log.damage import Damage, DamageKind
from core.log.segment_walk import SegmentWalk
from tests.support.damage import places
from tests.support.golden import GOLDEN
from tests.support.logs import append, make_batch, open_log

FILES = sorted(
    path for name in ("codec_zstd_java", "txn_interleaved", "v1_gzip_java", "mixed_v0_v1_v2", "compacted_txn")
    for path in (GOLDEN / name).glob("*.log") if path.stat().st_size
)  # fmt: skip


def covered(path: Path) -> list[tuple[int, int]]:
    walk = SegmentWalk(path, int(path.stem))
    found = []
    for item in walk:
        end = item.end_position if isinstance(item, Damage) else item.position + item.size_bytes
        found.append((item.position, end))
    walk.close()
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.parent.name)
@given(seed=st.integers(0, 2**32))
def test_every_byte_is_told_of_once(path: Path, tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    random = Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(random.randint(0, 5)):
        position = random.randrange(len(data))
        data[position : position + random.choice((1, 1, 8, 600))] = random.randbytes(random.choice((1, 1, 8, 600)))
    copy = tmp_path_factory.getbasetemp() / "walk" / path.name
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(data)
    found = covered(copy)
    assert [start for start, _ in found] == [0, *(end for _, end in found)][: len(found)]
    assert found[-1][1] == len(data)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.parent.name)
@given(seed=st.integers(0, 2**32), read_bytes=st.sampled_from((1, 200, 1000, 1 << 20)))
def test_pages_hold_what_is_given_one_by_one(
    path: Path, tmp_path_factory: pytest.TempPathFactory, seed: int, read_bytes: int
) -> None:
    random = Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(random.randint(0, 3)):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    copy = tmp_path_factory.getbasetemp() / "pages" / path.name
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(data)
    walk = SegmentWalk(copy, int(path.stem), read_bytes=read_bytes)
    found: list[tuple[int, int]] = []
    for page in walk.pages_from(0):
        items = [page] if isinstance(page, Damage) else page
        assert items
        for item in items:
            end = item.end_position if isinstance(item, Damage) else item.position + item.size_bytes
            found.append((item.position, end))
    walk.close()
    assert found == covered(copy)


def test_a_huge_claim_costs_no_memory(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for _ in range(3):
        append(log, make_batch(b"x"))
    log.close()
    second = places(tmp_path / "t-0")[1]
    with second.path.open("r+b") as file:
        file.seek(second.position + 8)
        file.write(struct.pack(">i", 2_000_000_000))
        file.truncate(3 << 30)  # zeros, which take no room
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    walk = SegmentWalk(second.path)
    items = list(walk)
    walk.close()
    assert [item.kind for item in items if isinstance(item, Damage)] == [DamageKind.GARBAGE, DamageKind.ZEROED]
    assert len(items) == 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
