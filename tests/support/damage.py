"""Random logs and the damage that is done to them, kept apart from the code that is to find it: batches are located by
the frames of the intact files, expectations by what was planted.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from core.inspector.check.findings import Code
from core.records.compression import CompressionType
from tests.support.logs import NOW, append, append_marker, make_batch, open_log

_FRAME = struct.Struct(">qi")


@dataclass(frozen=True)
class Place:
    """A batch of an intact log: bytes [position, end) of a segment, offsets [offset, end_offset)."""

    path: Path
    position: int
    end: int
    offset: int
    end_offset: int

    is_control: bool

    @property
    def offsets(self) -> set[int]:
        return set(range(self.offset, self.end_offset))


def places(directory: Path) -> list[Place]:
    """Of every batch of a folder's segments, which are sound and of magic 2."""
    found = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        position = 0
        while position < len(data):
            offset, length = _FRAME.unpack_from(data, position)
            (last_delta,) = struct.unpack_from(">i", data, position + 23)
            end = position + 12 + length
            is_control = bool(data[position + 22] & 0x20)
            found.append(Place(path, position, end, offset, offset + last_delta + 1, is_control))
            position = end
    return found


def write_log(directory: Path, random: Random, batches: int) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Segments of every codec, idempotent, transactional and plain producers; (key, value) of every data record."""
    cleaner_checkpoint(directory).unlink(missing_ok=True)
    log = open_log(directory, segment_bytes=3000, index_interval_bytes=300)
    records: dict[int, tuple[bytes | None, bytes | None]] = {}
    sequences = dict.fromkeys((7, 8, 9), 0)
    is_open = {8: False, 9: False}
    for number in range(batches):
        producer = random.choice((-1, 7, 7, 8, 9))
        if producer in is_open and is_open[producer] and random.random() < 0.3:
            append_marker(log, producer, is_commit=random.random() < 0.5)
            is_open[producer] = False
            continue
        values = [random.randbytes(random.choice((1, 20, 200))) for _ in range(random.randint(1, 4))]
        fields: dict[str, object] = {"compression": random.choice(list(CompressionType))}
        if producer >= 0:
            fields |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            sequences[producer] += len(values)
        if producer in is_open:
            fields["is_transactional"] = is_open[producer] = True
        key = b"k%d" % (number % 5)
        offset = log.log_end_offset
        append(log, make_batch(*values, key=key, timestamp=NOW + 10 * number, **fields))
        records |= {offset + n: (key, value) for n, value in enumerate(values)}
    for producer, is_left_open in is_open.items():
        if is_left_open:
            append_marker(log, producer, is_commit=True)
    log.close()
    if random.random() < 0.3:
        for offset in _compact(directory, random):
            records.pop(offset, None)
    return records


def cleaner_checkpoint(directory: Path) -> Path:
    return directory.parent / "cleaner-offset-checkpoint"


def _compact(directory: Path, random: Random) -> set[int]:
    """Takes out whole batches, as a cleaner does whose later ones have the keys, and notes beside the folder how far it
    came; the offsets that are gone. Indexes are made again. Batches of producers stay: the last of each would have to.
    """
    gone: set[int] = set()
    topic, _, partition = directory.name.rpartition("-")
    cleaned_below = int(max(directory.glob("*.log")).stem)
    cleaner_checkpoint(directory).write_text(f"0\n1\n{topic} {partition} {cleaned_below}\n")
    for path in sorted(directory.glob("*.log"))[:-1]:
        data, kept = path.read_bytes(), b""
        for place in places(directory):
            if place.path == path:
                whole = data[place.position : place.end]
                if whole[43:51] == b"\xff" * 8 and random.random() < 0.5:
                    gone |= place.offsets
                else:
                    kept += whole
        path.write_bytes(kept)
        path.with_suffix(".index").unlink()
        path.with_suffix(".timeindex").unlink()
    open_log(directory, segment_bytes=3000, index_interval_bytes=300).close()
    return gone


@dataclass
class Planted:
    """What was done, and what has to be said of it."""

    codes: list[Code] = field(default_factory=list)
    """Of the findings that have to come, one for each."""
    lost: set[int] = field(default_factory=set)
    """Offsets that no salvage brings back."""
    fixable: set[int] = field(default_factory=set)
    """Of those, the ones that a located bit brings back."""
    first: tuple[Path, int] | None = None
    """(segment, position) of the first damaged batch."""


def plant(directory: Path, random: Random) -> Planted:
    """Damage of one to three kinds, in batches that do not touch each other."""
    planted = Planted()
    of_log = places(directory)
    if random.random() < 0.4:
        _damage_tail(of_log, random, planted)
        of_log = of_log[:-2]
    inner = of_log[1:-1:3]
    for place in random.sample(inner, min(len(inner), random.randint(0 if planted.codes else 1, 3))):
        kind = random.choice((_flip_bit, _flip_length, _change_magic, _zero, _overwrite))
        kind(place, random, planted)
        first = (place.path, place.position)
        planted.first = min(planted.first, first) if planted.first else first
    return planted


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def _flip(path: Path, position: int, bit: int) -> None:
    patch(path, position, bytes([path.read_bytes()[position] ^ 1 << bit]))


def _flip_bit(place: Place, random: Random, planted: Planted) -> None:
    """Of the checksum or of what it covers."""
    _flip(place.path, random.randrange(place.position + 17, place.end), random.randrange(8))
    planted.codes.append(Code.CRC_MISMATCH)
    planted.lost |= place.offsets
    planted.fixable |= place.offsets


def _flip_length(place: Place, random: Random, planted: Planted) -> None:
    bit = random.randrange(31)
    _flip(place.path, place.position + 11 - bit // 8, bit % 8)
    planted.codes.append(Code.BAD_LENGTH)
    planted.lost |= place.offsets
    planted.fixable |= place.offsets


def _change_magic(place: Place, random: Random, planted: Planted) -> None:
    patch(place.path, place.position + 16, bytes([random.randrange(3, 256)]))
    planted.codes.append(Code.BAD_MAGIC)
    planted.lost |= place.offsets
    planted.fixable |= place.offsets


def _zero(place: Place, _random: Random, planted: Planted) -> None:
    """The whole batch: its frame is gone too."""
    patch(place.path, place.position, bytes(place.end - place.position))
    planted.codes.append(Code.ZEROED)
    planted.lost |= place.offsets


def _overwrite(place: Place, random: Random, planted: Planted) -> None:
    """With what is no batch: the magic is none."""
    junk = bytearray(random.randbytes(place.end - place.position))
    junk[16] = 0xEE
    patch(place.path, place.position, bytes(junk))
    planted.codes.append(Code.GARBAGE)
    planted.lost |= place.offsets


def _damage_tail(of_log: list[Place], random: Random, planted: Planted) -> None:
    last = of_log[-1]
    kind = random.choice(("torn", "zeros", "garbage", "short"))
    with last.path.open("r+b") as file:
        if kind == "torn":
            file.truncate(random.randrange(last.position + 1, last.end))
            planted.codes.append(Code.TORN_TAIL)
            planted.lost |= last.offsets
            planted.first = last.path, last.position
        elif kind == "short" and last.position:
            file.truncate(last.position)
            planted.codes.append(Code.LOG_SHORT)
            planted.lost |= last.offsets
        else:
            file.seek(0, 2)
            junk = bytes(random.randint(8, 5000)) if kind == "zeros" else b"\xee" * random.randint(17, 5000)
            file.write(junk)
            planted.codes.append(Code.ZEROED if kind == "zeros" else Code.GARBAGE)
            planted.first = last.path, last.end
