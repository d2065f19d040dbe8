"""Log files made byte by byte, in all shapes that brokers, cleaners and other people's clients have left: what
tests/support/log_frames.py and record_decoder.py read. Nothing of `core` is imported.

A record is (key, value); a null is None.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import lz4.frame
import snappy
import zstandard

from tests.support.log_frames import crc32c

Record = tuple[bytes | None, bytes | None]
NOW = 1_700_000_000_000
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def batch(
    base_offset: int,
    records: Sequence[Record],
    *,
    deltas: Sequence[int] | None = None,
    codec: int = 0,
    compress: Callable[[bytes], bytes] = bytes,
    last_offset_delta: int | None = None,
) -> bytes:
    """A batch of magic 2; `deltas` are the records' offsets in it, if they do not go up by one."""
    deltas = range(len(records)) if deltas is None else deltas
    section = compress(b"".join(_record(delta, *record) for delta, record in zip(deltas, records, strict=True)))
    last = deltas[-1] if last_offset_delta is None else last_offset_delta
    after_crc = struct.pack(">hiqqqhii", codec, last, NOW, NOW, -1, -1, -1, len(records)) + section
    return struct.pack(">qiibI", base_offset, len(after_crc) + 9, 0, 2, crc32c(after_crc)) + after_crc


def _record(delta: int, key: bytes | None, value: bytes | None) -> bytes:
    body = b"\0" + _varint(0) + _varint(delta) + _varint_bytes(key) + _varint_bytes(value) + _varint(0)
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    zigzag, out = number << 1 ^ number >> 63, b""
    while zigzag > 127:
        out, zigzag = out + bytes([zigzag & 127 | 128]), zigzag >> 7
    return out + bytes([zigzag])


def _varint_bytes(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def message(offset: int, key: bytes | None, value: bytes | None, magic: int, attributes: int = 0) -> bytes:
    """A message of magic 0 or 1."""
    fields = b"".join(struct.pack(">i", -1) if f is None else struct.pack(">i", len(f)) + f for f in (key, value))
    body = bytes([magic, attributes]) + (struct.pack(">q", NOW) if magic else b"") + fields
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    offsets: Sequence[int],
    records: Sequence[Record],
    magic: int,
    *,
    codec: int = GZIP,
    inner_magic: int | None = None,
    compress: Callable[[bytes], bytes] | None = None,
    offset: int | None = None,
) -> bytes:
    """A compressed message with others inside, of its own magic or of `inner_magic`. Those in a wrapper of magic 0 have
    their own offsets, in one of magic 1 offsets that count from the first. `offset` is its own, if that is not its last
    one's.
    """
    inner = magic if inner_magic is None else inner_magic
    base = offsets[0] if magic == 1 else 0
    section = b"".join(message(o - base, *r, inner) for o, r in zip(offsets, records, strict=True))
    data = (compress or _OF_OLD[codec](magic))(section)
    return message(offsets[-1] if offset is None else offset, None, data, magic, codec)


def xerial(data: bytes) -> bytes:
    """As Java writes snappy: a stream of blocks."""
    blocks = (snappy.compress(data[start : start + 32768]) for start in range(0, len(data), 32768))
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


def lz4_frame(data: bytes, **options: bool) -> bytes:
    return bytes(lz4.frame.compress(data, block_linked=False, **options))


def linked_lz4(data: bytes) -> bytes:
    """Piece by piece: `lz4.frame.compress` writes no linked blocks if all fits into one."""
    context = lz4.frame.create_compression_context()
    parts = lz4.frame.compress_begin(context, block_linked=True), lz4.frame.compress_chunk(context, data)
    return b"".join((*parts, lz4.frame.compress_flush(context)))


def _old_lz4(data: bytes) -> bytes:
    """Of magic 0: the checksum of its header is wrong (KAFKA-3160)."""
    frame = bytearray(lz4_frame(data, store_size=False))
    frame[6] ^= 0x55
    return bytes(frame)


_OF_OLD: Mapping[int, Callable[[int], Callable[[bytes], bytes]]] = {
    GZIP: lambda _: gzip.compress,
    SNAPPY: lambda _: xerial,
    LZ4: lambda magic: lz4_frame if magic else _old_lz4,
}

SKIPPABLE = struct.pack("<II", 0x184D2A5F, 6) + b"sealed"
_zstd = zstandard.ZstdCompressor().compress


def _halves(data: bytes, compress: Callable[[bytes], bytes]) -> tuple[bytes, bytes]:
    return compress(data[: len(data) // 2]), compress(data[len(data) // 2 :])


ODD_FRAMES: Mapping[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip of two members": (GZIP, lambda data: b"".join(_halves(data, gzip.compress))),
    "gzip and zeros": (GZIP, lambda data: gzip.compress(data) + bytes(300)),
    "gzip and junk": (GZIP, lambda data: gzip.compress(data) + b"junk" * 9),
    "zstd after a skippable frame": (ZSTD, lambda data: SKIPPABLE + _zstd(data)),
    "zstd of two frames": (ZSTD, lambda data: SKIPPABLE.join(_halves(data, _zstd)) + SKIPPABLE),
    "lz4 with a content checksum": (LZ4, lambda data: lz4_frame(data, content_checksum=True, store_size=True)),
    "lz4 with a wrong content checksum": (LZ4, lambda data: lz4_frame(data, content_checksum=True)[:-4] + b"nope"),
    "lz4 and junk": (LZ4, lambda data: lz4_frame(data) + b"junk"),
    "lz4 with linked blocks": (LZ4, linked_lz4),
    "snappy raw": (SNAPPY, lambda data: bytes(snappy.compress(data))),
    "two xerial streams": (SNAPPY, lambda data: b"".join(_halves(data, xerial))),
}
"""Frames of other encoders that are read: (codec, compress)."""

_dictionary = zstandard.train_dictionary(1000, [b"sample %d, of text %d" % (n, n * n) for n in range(2000)])
REFUSED_FRAMES: Mapping[str, tuple[int, Callable[[bytes], bytes]]] = {
    "zlib": (GZIP, zlib.compress),
    "gzip that is cut": (GZIP, lambda data: gzip.compress(data)[:-9]),
    "zstd with a dictionary": (ZSTD, lambda data: zstandard.ZstdCompressor(dict_data=_dictionary).compress(data)),
    "zstd and junk": (ZSTD, lambda data: _zstd(data) + b"junk"),
    "lz4 of the legacy format": (LZ4, lambda data: struct.pack("<II", 0x184C2102, len(data)) + data),
    "lz4 after a skippable frame": (LZ4, lambda data: SKIPPABLE + lz4_frame(data)),
}
"""Frames that nobody can read: (codec, compress)."""


def write_partition(directory: Path, segments: Mapping[int, bytes]) -> Path:
    """Writes the logs of a partition, by their base offsets, and nothing else."""
    directory.mkdir(parents=True, exist_ok=True)
    for base_offset, data in segments.items():
        (directory / f"{base_offset:020}.log").write_bytes(data)
    return directory


def random_log(random: Random, *, has_odd_wrappers: bool = False) -> tuple[dict[int, bytes], str]:
    """The segments of a log that several brokers, cleaners and clients wrote, and in words what is odd of it: messages
    of all formats in any position, frames of other encoders, holes of a cleaner, and with luck offsets that are further
    from their segment's name than an index can name. With `has_odd_wrappers` those frames are in old messages, too.
    """
    said = list[str]()
    segments = dict[int, bytes]()
    next_offset = random.choice((0, 0, 17))
    is_compacted, is_old = random.random() < 0.4, random.random() < 0.6
    for _ in range(random.randint(1, 3)):
        base, data = next_offset, b""
        for _ in range(random.randint(0 if is_compacted and is_old else 1, 4)):
            if is_compacted and random.random() < 0.5:
                next_offset += random.randint(1, 9)
            if random.random() < 0.06:
                next_offset += random.choice((2**31 - 2, 2**31 + 5, 2**33))
                said.append(f"offsets go on at {next_offset}")
            entry, next_offset = _random_entry(
                random, next_offset, said, is_compacted=is_compacted, is_old=is_old, has_odd_wrappers=has_odd_wrappers
            )
            data += entry
        segments[base] = data
        next_offset = max(next_offset, base + 1)
    return segments, ", ".join(said)


def _random_entry(
    random: Random, offset: int, said: list[str], *, is_compacted: bool, is_old: bool, has_odd_wrappers: bool
) -> tuple[bytes, int]:
    count = random.randint(1, 4)
    step = [random.choice((1, 1, 3)) if is_compacted else 1 for _ in range(count)]
    offsets = [offset + sum(step[:number]) for number in range(count)]
    records: list[Record] = [
        (random.choice((b"a", b"b", b"key-%d" % offset, None)), random.choice((b"v", b"value" * 30, None)))
        for _ in offsets
    ]
    if not is_old or random.random() < 0.3:
        kind = random.choice((None, *ODD_FRAMES, *REFUSED_FRAMES)) if random.random() < 0.6 else None
        said += [kind] if kind else []
        codec, compress = (ODD_FRAMES | REFUSED_FRAMES)[kind] if kind else (0, bytes)  # type: ignore[operator]
        deltas = [one - offset for one in offsets]
        return batch(offset, records, deltas=deltas, codec=codec, compress=compress), offsets[-1] + 1
    magic = random.choice((0, 1))
    if random.random() < 0.4:
        said.append(f"a message of magic {magic}")
        return message(offset, *records[0], magic), offset + 1
    inner, codec = random.choice((magic, magic, 1 - magic)), random.choice((GZIP, SNAPPY, LZ4))
    said.append(f"a wrapper of magic {magic}, codec {codec}, with {count} of magic {inner}")
    own = offsets[-1] + random.choice((-1, 1, 5)) if random.random() < 0.1 and offsets[-1] else None
    said += [] if own is None else [f"which states {own} instead of {offsets[-1]}"]
    compress = None
    if has_odd_wrappers and random.random() < 0.5:
        kind = random.choice([name for name, (of, _) in (ODD_FRAMES | REFUSED_FRAMES).items() if of != ZSTD])
        codec, compress = (ODD_FRAMES | REFUSED_FRAMES)[kind]
        said[-1] += f", {kind}"
    data = wrapper(offsets, records, magic, codec=codec, inner_magic=inner, compress=compress, offset=own)
    return data, offsets[-1] + 1
