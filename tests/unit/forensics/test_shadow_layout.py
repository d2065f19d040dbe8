"""What the files of a log that is served by a reader alone hold after they were put in order."""

from __future__ import annotations

from pathlib import Path

from core.common.filesystem import FileSystem
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.shadow_layout import ShadowLayout, arrange
from tests.support.damage import places
from tests.support.logs import PARTITION, append, make_batch, open_log


def test_a_batch_with_a_flipped_bit_is_left_out_of_segments_with_each_others_names(tmp_path: Path) -> None:
    """Its bytes would stand where a sound batch is looked for."""
    folder = tmp_path / "t-0"
    log = open_log(folder, segment_bytes=300)
    for number in range(6):
        append(log, make_batch(b"%d" % number * 60))
    log.close()
    stands = places(folder)
    first, second = stands[0].path, stands[2].path
    assert [one.path for one in stands[:4]] == [first, first, second, second]
    sound, flipped = first.read_bytes(), bytearray(second.read_bytes())
    flipped[stands[2].end - 5] ^= 4
    first.write_bytes(flipped)
    second.write_bytes(sound)
    found = arrange(folder, KnownOffsetsOfDirectory(tmp_path).of(folder, PARTITION), FileSystem(), 0)
    assert isinstance(found, ShadowLayout)
    assert found.rewritten == {0, 2}
    assert (first.read_bytes(), second.read_bytes()) == (sound, flipped[stands[3].position :])
