"""The look for offsets that are missing for no known reason, against what the whole reading says."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from core.forensics.missing_offsets import Hole, HoleReason
from core.forensics.partition_reader import PartitionReader
from core.forensics.unexplained_gaps import UnexplainedGaps
from tests.support.compaction import write_thinned_log
from tests.support.for_each import for_each
from tests.support.golden import directories
from tests.support.logs import open_log

FOLDERS = [path for path in directories() if not path.name.startswith("_root")]


def read_whole(reader: PartitionReader) -> UnexplainedGaps:
    found = UnexplainedGaps()
    for item in reader.reading.items(reader.start_offset):
        if isinstance(item, Hole) and item.reason is HoleReason.UNKNOWN:
            found.add(item.start, item.end)
    return found


def test_it_finds_in_kafkas_folders_what_reading_finds(tmp_path: Path) -> None:
    """Alone, without a checkpoint beside them."""
    for folder in FOLDERS:
        name = folder.name if folder.name.startswith("__") else f"{folder.name}-0"
        with contextlib.closing(PartitionReader(Path(shutil.copytree(folder, tmp_path / name)))) as reader:
            found, whole = reader.unexplained(0, reader.end_offset, most_batches=None), read_whole(reader)
        assert found == whole, name


@for_each("most_batches", [1, 2, 5, 1000, None])
def test_a_look_at_some_batches_finds_some_holes(tmp_path: Path, most_batches: int | None) -> None:
    left = write_thinned_log(tmp_path / "t-0")
    with contextlib.closing(PartitionReader(tmp_path / "t-0")) as reader:
        whole = read_whole(reader)
        found = reader.unexplained(0, reader.end_offset, most_batches=most_batches)
        assert whole.offsets == 60 - len(left)
        assert 0 <= found.count <= whole.count
        assert found == whole or (most_batches is not None and most_batches < 1000)
        for start in range(0, 60, 7):
            part = reader.unexplained(start, start + 7, most_batches=None)
            assert part.offsets == 7 - len([offset for offset in left if start <= offset < start + 7]) or start + 7 > 60


def test_a_segment_that_is_gone_without_a_trace_is_found_at_a_look(tmp_path: Path) -> None:
    write_thinned_log(tmp_path / "t-0")
    open_log(tmp_path / "t-0", segment_bytes=2000, index_interval_bytes=100).close()  # which makes indexes
    second, third = (path.stem for path in sorted((tmp_path / "t-0").glob("*.log"))[1:3])
    for path in (tmp_path / "t-0").glob(f"{second}.*"):
        path.unlink()
    with contextlib.closing(PartitionReader(tmp_path / "t-0")) as reader:
        assert read_whole(reader).offsets > int(third) - int(second)
        found = reader.unexplained(int(second), int(third), most_batches=1)
        assert (found.count, found.start, found.end) == (1, int(second), int(third))


def test_what_is_said_of_one_hole_and_of_several(tmp_path: Path) -> None:
    holes = UnexplainedGaps()
    holes.add(7, 8)
    assert holes.text(tmp_path).startswith("offset 7 is not in the log: no batch holds them")
    holes.add(1000, 3000)
    assert holes.text(tmp_path, more=True).startswith(
        "2,001 more offsets in 2 holes from 7 to 2999 are not in the log: "
    )
