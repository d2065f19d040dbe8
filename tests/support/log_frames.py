"""The sound frames of a log file that may be damaged, by its bytes alone. Nothing of `core` is imported.

The first step of tests/support/log_model.py.

A frame is a record batch of magic 2, or a message of magic 0 or 1 (a plain one or a wrapper), as it stands in a file.

    0   int64   base offset (magic 0 and 1: the offset, a wrapper's last)
    8   int32   length of what follows
    magic 2:                                    magic 0 and 1:
    12  int32   leader epoch                    12  uint32  CRC-32 of the bytes from 16 on
    16  int8    magic                           16  int8    magic
    17  uint32  CRC-32C of the bytes from 21    17  int8    attributes
    21  int16   attributes                      18  int64   timestamp (magic 1 only)
    23  int32   last offset delta                   int32   key length, key, int32 value length, value
    43  int64   producer id
    51  int16   producer epoch
    57  int32   record count
    61  records
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import crcmod.predefined

from tests.support.record_decoder import CODEC_MASK, LEAST_LENGTH, inner_offsets

crc32c = crcmod.predefined.mkPredefinedCrcFun("crc-32c")

_MOST_BYTES = 100 * 1024 * 1024
_HEADER_BYTES = 17
"""Enough to see an offset, a length and a magic."""
_MOST_RELATIVE_OFFSET = 2**31 - 1
_TRANSACTIONAL, _CONTROL = 0x10, 0x20


@dataclass(frozen=True)
class Frame:
    """A sound one: bytes [position, end) of a file, offsets [base, end_offset); it states its base, or as a wrapper of
    magic 0 or 1 its last offset.
    """

    path: Path
    file_base: int
    position: int
    end: int
    base: int
    end_offset: int
    crc: int
    magic: int
    data: bytes = field(repr=False, compare=False)
    stated: int

    @property
    def span(self) -> int:
        return self.end_offset - self.base

    @property
    def attributes(self) -> int:
        return int(struct.unpack_from(">h", self.data, 21)[0]) if self.magic == 2 else self.data[17]

    @property
    def is_control(self) -> bool:
        return self.magic == 2 and bool(self.attributes & _CONTROL)

    @property
    def is_transactional(self) -> bool:
        return self.magic == 2 and bool(self.attributes & _TRANSACTIONAL)

    @property
    def producer_id(self) -> int:
        return int(struct.unpack_from(">q", self.data, 43)[0]) if self.magic == 2 else -1

    @property
    def lacks_some(self) -> bool:
        """Whether it holds fewer records than offsets, by its header or by what is inside."""
        if self.magic == 2:
            return int(struct.unpack_from(">i", self.data, 57)[0]) < self.span
        return len(inner_offsets(self.data)) < self.span if self.data[17] & CODEC_MASK and self.span > 1 else False

    @property
    def covers_offsets(self) -> bool:
        """A wrapper of magic 0 has those of its messages, as they are, under its checksum."""
        return self.magic == 0 and bool(self.attributes & CODEC_MASK) and bool(inner_offsets(self.data))

    @property
    def is_closed(self) -> bool:
        """Whether it is a compressed message of an old format in which no offset can be read."""
        return self.magic < 2 and bool(self.attributes & CODEC_MASK) and not inner_offsets(self.data)

    @property
    def is_beyond_reach(self) -> bool:
        """By its file: an index holds 31 bits of offsets after the base offset."""
        return self.end_offset - 1 - self.file_base > _MOST_RELATIVE_OFFSET

    def is_one_bit_from(self, base: int, *, fits: bool = False) -> bool:
        """Whether one bit of the offset that it states stands between it and that base; where it fits, a wrapper may
        state any other.
        """
        if fits and self.stated != self.base:
            return self.base != base
        return ((self.stated ^ (base + self.stated - self.base)) & 0xFFFF_FFFF_FFFF_FFFF).bit_count() == 1

    def __str__(self) -> str:
        return f"{self.path.name}@{self.position} offsets {self.base}-{self.end_offset - 1}"


@dataclass(frozen=True)
class Damage:
    """Bytes [position, end) of a file that are no sound frame."""

    path: Path
    position: int
    end: int


class FileWalk:
    """One file from its first byte to its last."""

    def __init__(self, path: Path, base: int, next_base: int | None, *, resumes_at_base: bool) -> None:
        self.frames: list[Frame] = []
        self.damage: list[Damage] = []
        self._path = path
        self._base = base
        self._resumes_at_base = resumes_at_base
        self._high = base + 2**31 if next_base is None else next_base
        self._data = path.read_bytes()
        position, damaged_end = 0, -1
        while position < len(self._data):
            frame = self._sound(position)
            if frame is not None:
                follows_zeros = position == damaged_end and self._data[position - 1] == 0
                if frame.stated == 0 and follows_zeros and not frame.covers_offsets:
                    self.damage.append(Damage(path, position, frame.end))  # its base offset may be a part of them
                elif frame.magic < 2 and frame.stated != frame.end_offset - 1:
                    self.damage.append(Damage(path, position, frame.end))  # a wrapper of magic 0 that states another
                else:
                    self.frames.append(frame)
                position = frame.end
                continue
            end = self._end_of_damage(position)
            self.damage.append(Damage(path, position, end))
            position = damaged_end = end

    def _header(self, position: int) -> tuple[int, int, int] | None:
        """(offset, size, magic) as they stand there; None where the file is too short for them."""
        if position + _HEADER_BYTES > len(self._data):
            return None
        offset, length = struct.unpack_from(">qi", self._data, position)
        return offset, 12 + length, self._data[position + 16]

    def _sound(self, position: int, size: int | None = None) -> Frame | None:
        """The sound frame that begins there; with `size`, the one that would if its length field said so."""
        header = self._header(position)
        if header is None:
            return None
        offset, stated, magic = header
        size = stated if size is None else size
        if magic not in LEAST_LENGTH or size - 12 < LEAST_LENGTH[magic] or position + size > len(self._data):
            return None
        data = self._data[position : position + size]
        if magic == 2:
            (crc,) = struct.unpack_from(">I", data, 17)
            (last_delta,) = struct.unpack_from(">i", data, 23)
            if crc32c(data[21:]) != crc or last_delta < 0:
                return None
            end_offset = offset + last_delta + 1
        else:
            (crc,) = struct.unpack_from(">I", data, 12)
            if zlib.crc32(data[16:]) != crc:
                return None
            inside = inner_offsets(data) if data[17] & CODEC_MASK else []
            base, end_offset = (inside[0], inside[-1] + 1) if inside else (offset, offset + 1)
            return Frame(self._path, self._base, position, position + size, base, end_offset, crc, magic, data, offset)
        return Frame(self._path, self._base, position, position + size, offset, end_offset, crc, magic, data, offset)

    def _end_of_damage(self, position: int) -> int:
        """Rule b comes first: where one bit of the length makes the batch sound, none within it does."""
        for find in (self._end_by_flipped_magic, self._end_by_flipped_length, self._end_by_header, self._next_fitting):
            end = find(position)
            if end is not None:
                return end
        return len(self._data)

    def _end_by_flipped_magic(self, position: int) -> int | None:
        """Rule a, where nothing but the magic is wrong: whatever follows."""
        header = self._header(position)
        if header is None or header[2] == 2 or not 61 <= header[1] <= _MOST_BYTES:
            return None
        data = self._data[position : position + header[1]]
        is_right = len(data) == header[1] and crc32c(data[21:]) == int.from_bytes(data[17:21], "big")
        return position + header[1] if is_right else None

    def _end_by_header(self, position: int) -> int | None:
        """Rule a. Of any magic but the current one, the least length is that of magic 0: it may be the magic that is
        wrong.
        """
        header = self._header(position)
        if header is None:
            return None
        _, size, magic = header
        end = position + size
        if not 12 + LEAST_LENGTH[2 if magic == 2 else 0] <= size <= _MOST_BYTES or end > len(self._data):
            return None
        return end if end == len(self._data) or self._sound(end) is not None else None

    def _end_by_flipped_length(self, position: int) -> int | None:
        """Rule b. Something that looks like a batch has to follow, or the file's end."""
        header = self._header(position)
        if header is None or header[2] != 2:
            return None
        length = int.from_bytes(self._data[position + 8 : position + 12], "big")
        for bit in range(32):
            size = 12 + (length ^ 1 << bit)
            end = position + size
            leads_on = end == len(self._data) or self._data[end + 16 : end + 17] == b"\2"
            if leads_on and size <= _MOST_BYTES and self._sound(position, size) is not None:
                return end
        return None

    def _next_fitting(self, position: int) -> int | None:
        """Rule c. Old messages are not looked for after a frame of the current format."""
        last = self.frames[-1] if self.frames else None
        low = self._base
        if last is not None and self._base <= last.end_offset <= self._high and not self._resumes_at_base:
            low = last.end_offset
        ranges = [(low, self._high)]
        if last is not None and not self._base <= last.end_offset <= self._high:  # another segment's, which go on
            ranges.append((last.end_offset, last.end_offset + 2**31))
        magics = (2,) if last is not None and last.magic == 2 else (0, 1, 2)
        for start in range(position + 1, len(self._data) - _HEADER_BYTES + 1):
            if self._data[start + 16] in magics:
                frame = self._sound(start)
                fits = frame is not None and any(one <= frame.stated and frame.end_offset <= end for one, end in ranges)
                if frame is not None and fits and _counts_fit(frame):
                    return start
        return None


def _counts_fit(frame: Frame) -> bool:
    if frame.magic < 2:
        return True
    return 0 <= int.from_bytes(frame.data[57:61], "big", signed=True) <= frame.span
