"""The five codecs of Kafka's record batches, and the shapes in which clients write them.

- gzip: one or more members (RFC 1952). Bytes after the last that begin no member are passed over, as by java.util.zip
- snappy: Java (and everything of magic 0 and 1) writes the xerial stream: 8 bytes of magic, int32 version, int32 lowest
  compatible version, then blocks of int32 length and a raw snappy block each of at most 32 KB; streams may be joined.
  librdkafka writes one raw block. Both are read, xerial is written.
- lz4: one frame with independent blocks of at most 64 KB. Its content size and content checksum are ignored, as are
  bytes after it, as in Kafka's Lz4BlockInputStream. Magic 0's frame headers carry a checksum that old Kafka
  computed wrongly (KAFKA-3160); it is accepted there only.
- zstd: frames, with or without their content size (KIP-110), and skippable ones before, between and after them

A few frames are read here and not by Kafka: `refused_by_kafka` names them.

The packages are imported when their codec is first used. A few compressed bytes can claim gigabytes: `decompress` stops
at `limit` bytes, or at the process's limit (core.common.decompression_limit). A caller that must not be held up by so
many takes them a piece at a time (`decompressed_pieces`, `stream_compressor`).
"""

from __future__ import annotations

import struct
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple, Protocol

from core.common.decompression_limit import PLOG_MAX_EXPANSION, expansion_limit
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError

Buffer = bytes | bytearray | memoryview

PIECE_BYTES = 1024 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_BLOCK_SIZE = 32 * 1024
_INT32 = struct.Struct(">i")
_ISAL_LEVEL = 3  # about zlib's 6 in size, 3.7 times its speed


_Decompressor = Callable[[Buffer, int, int], Iterator[bytes]]
"""Takes data, the limit for all of its pieces, beyond which even a claim is refused, and the message's magic."""


class CompressionType(IntEnum):
    """The codecs: the low three attribute bits of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def text(self) -> str:
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> CompressionType:
        """Raises KafkaError(UNSUPPORTED_COMPRESSION_TYPE) for a name that is no codec's."""
        try:
            return cls[text.upper()]
        except KeyError:
            names = ", ".join(c.text for c in cls)
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type {text!r}, expected one of {names}"
            ) from None


def compress(codec: CompressionType, data: Buffer, level: int | None = None) -> bytes:
    """Compresses; `level` is the codec's own: gzip 1 to 9, lz4 1 to 17, zstd -131072 to 22; None takes its default."""
    if codec is CompressionType.NONE:
        return bytes(data)
    return _CODECS[codec].compress(data, level)


class StreamCompressor(Protocol):
    """Compresses data piece by piece; the pieces that it returns make one whole."""

    def compress(self, data: Buffer) -> bytes: ...

    def flush(self) -> bytes:
        """Returns the end of the compressed data."""


def stream_compressor(codec: CompressionType, level: int | None = None) -> StreamCompressor:
    """Makes a compressor for data that is too large to compress at once; `level` is that of `compress`."""
    return _PlainStream() if codec is CompressionType.NONE else _CODECS[codec].stream(level)


def decompress(codec: CompressionType, data: Buffer, *, limit: int | None = None, magic: int = 2) -> bytes:
    """Returns the uncompressed bytes; raises CorruptRecordError if they break the codec's format or exceed `limit`
    bytes, by default the process's limit.
    """
    if codec is CompressionType.NONE:
        return bytes(data)
    return b"".join(_pieces(_CODECS[codec].decompress, codec, data, limit, magic))


def decompressed_pieces(codec: CompressionType, data: Buffer, *, magic: int = 2) -> Iterator[bytes]:
    """Yields the decompressed bytes in pieces of at most `PIECE_BYTES`, except for one snappy block, which is a few
    dozen times its compressed bytes; a piece may be empty. Raises what `decompress` raises, when it is met.
    """
    if codec is CompressionType.NONE:
        return (bytes(data[start : start + PIECE_BYTES]) for start in range(0, len(data), PIECE_BYTES))
    return _pieces(_CODECS[codec].decompress, codec, data, None, magic)


def _pieces(
    decompress: _Decompressor, codec: CompressionType, data: Buffer, limit: int | None, magic: int
) -> Iterator[bytes]:
    if not len(data):
        raise CorruptRecordError(f"{codec.text} data is empty")
    limit = expansion_limit() if limit is None else limit
    total = 0
    try:
        for piece in decompress(data, limit, magic):
            total += len(piece)
            _ensure_within(total, limit)
            yield piece
    except (RuntimeError, ValueError, IndexError, struct.error, zlib.error) as error:
        raise CorruptRecordError(f"{codec.text} data does not decompress: {error}") from error


def _ensure_within(size: int, limit: int) -> None:
    if size > limit:
        raise CorruptRecordError(
            f"compressed data expands to more than {limit} bytes, which is the limit; raise the limit for a log that "
            f"you trust: plog --max-expansion or {PLOG_MAX_EXPANSION}, in Spark the option maxExpansion"
        )


def decompress_zlib(data: Buffer) -> bytes:
    """Returns the uncompressed bytes of zlib's format, as AWS Glue's serializers compress values; the limit is that of
    the process. Raises CorruptRecordError.
    """
    limit = expansion_limit()
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise CorruptRecordError(f"zlib data does not decompress: {error}") from error
    _ensure_within(len(found), limit)
    if not stream.eof:
        raise CorruptRecordError("zlib data is cut off")
    return found


def decompress_what_can_be(codec: CompressionType, data: Buffer, *, magic: int = 2) -> bytes:
    """Decompresses data up to the point where it is cut short or damaged."""
    is_zstd = codec is CompressionType.ZSTD
    pieces = (
        _pieces(_salvage_zstd, codec, data, None, magic) if is_zstd else decompressed_pieces(codec, data, magic=magic)
    )
    found = list[bytes]()
    with suppress(CorruptRecordError):
        found.extend(pieces)
    return b"".join(found)


def no_frame_error(codec: CompressionType, data: Buffer) -> CorruptRecordError:
    """Makes the error about data that begins with none of `FRAME_STARTS`."""
    try:
        _ensure_begins(data, FRAME_STARTS[codec][0][:4], f"{codec.text} data does not begin as such")
    except CorruptRecordError as error:
        return error
    return CorruptRecordError(refused_by_kafka(codec, data) or f"the {codec.text} frame has flags that Kafka refuses")


class _PlainStream:
    def compress(self, data: Buffer) -> bytes:
        return bytes(data)

    def flush(self) -> bytes:
        return b""


# --- gzip


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    if level is None:
        from isal import igzip

        compressed: bytes = igzip.compress(data, _ISAL_LEVEL)
        return compressed
    import gzip

    return gzip.compress(data, level, mtime=0)


def _stream_gzip(level: int | None) -> StreamCompressor:
    if level is None:
        from isal import isal_zlib

        compressor: StreamCompressor = isal_zlib.compressobj(_ISAL_LEVEL, isal_zlib.DEFLATED, _GZIP_WINDOW)
        return compressor
    return zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)


_GZIP_WINDOW = 31  # the largest, with gzip's header and trailer

_GZIP_INPUT_BYTES = 64 * 1024
"""Compressed bytes read at once: a call copies the rest that it leaves."""

_GZIP_START = b"\x1f\x8b\x08"
"""The start of a member: its magic, and deflate, the one method."""

_GZIP_FRAME_BYTES = 18
"""Header and trailer of a member: if no more bytes follow the last one, they are no member."""


def _decompress_gzip(data: Buffer, _limit: int, _magic: int) -> Iterator[bytes]:
    from isal import isal_zlib

    _ensure_begins(data, _GZIP_START, "gzip data does not begin as such")
    rest, position = data[:_GZIP_INPUT_BYTES], _GZIP_INPUT_BYTES
    while len(rest):
        member = isal_zlib.decompressobj(_GZIP_WINDOW)
        while not member.eof:
            if not len(rest):
                rest, position = data[position : position + _GZIP_INPUT_BYTES], position + _GZIP_INPUT_BYTES
            has_ended = not len(rest)
            try:
                piece = member.decompress(rest, PIECE_BYTES)
            except isal_zlib.error as error:  # type: ignore[misc]  # its stubs call it a class of no kind
                raise ValueError(error) from error
            if has_ended and not piece and not member.eof:
                raise CorruptRecordError("gzip data is cut short")
            yield piece
            rest = member.unconsumed_tail
        rest = member.unused_data
        if len(rest) <= _GZIP_FRAME_BYTES:
            rest = rest + bytes(data[position : position + _GZIP_INPUT_BYTES])
            position += _GZIP_INPUT_BYTES
        if len(rest) <= _GZIP_FRAME_BYTES or rest[: len(_GZIP_START)] != _GZIP_START:
            return


def _ensure_begins(data: Buffer, magic: bytes, why: str) -> None:
    if bytes(data[: len(magic)]) != magic[: len(data)]:
        raise CorruptRecordError(f"{why}: {bytes(data[:4]).hex()} is {_name_of_format(data)}")


def _name_of_format(data: Buffer) -> str:
    start = bytes(data[:8])
    for magic, name in _FORMATS.items():
        if start.startswith(magic):
            return name
    is_zlib = len(start) >= 2 and start[0] & 15 == 8 and int.from_bytes(start[:2], "big") % 31 == 0
    return "zlib's format" if is_zlib else "no format that Kafka knows"


# --- snappy


def _compress_snappy(data: Buffer, _level: int | None) -> bytes:
    import snappy

    view = memoryview(data)
    pieces = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1)]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = snappy.compress(view[start : start + _XERIAL_BLOCK_SIZE])
        pieces += (_INT32.pack(len(block)), block)
    return b"".join(pieces)


class _SnappyStream:
    def __init__(self) -> None:
        self._rest = b""
        self._has_begun = False

    def compress(self, data: Buffer) -> bytes:
        data = self._rest + bytes(data)
        whole = len(data) - len(data) % _XERIAL_BLOCK_SIZE
        self._rest = data[whole:]
        return self._blocks(data[:whole])

    def flush(self) -> bytes:
        return self._blocks(self._rest)

    def _blocks(self, data: bytes) -> bytes:
        compressed = _compress_snappy(data, None)
        has_begun, self._has_begun = self._has_begun, True
        return compressed[_XERIAL_HEADER.size :] if has_begun else compressed


def _decompress_snappy(data: Buffer, limit: int, _magic: int) -> Iterator[bytes]:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield _decompress_snappy_block(view, 0, limit)
        return
    position = _XERIAL_HEADER.size
    total = 0
    while len(view) - position >= _INT32.size:  # fewer bytes are passed over, as SnappyInputStream does
        if bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:  # another stream
            position += _XERIAL_HEADER.size
            continue
        (size,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 <= size <= len(view) - position:
            raise CorruptRecordError(f"snappy block of {size} bytes where {len(view) - position} are left")
        block = _decompress_snappy_block(view[position : position + size], total, limit)
        total += len(block)
        position += size
        yield block


def _decompress_snappy_block(block: memoryview, before: int, limit: int) -> bytes:
    import snappy

    from core.common.varint import read_uvarint

    claimed, _ = read_uvarint(block, 0)
    _ensure_within(before + claimed, limit)
    try:
        data: bytes = snappy.uncompress(block)
    except snappy.UncompressError as error:
        raise ValueError(error) from error
    return data


# --- lz4


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    compressed: bytes = lz4.frame.compress(
        data, compression_level=level or 0, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )
    return compressed


class _Lz4Stream:
    def __init__(self, level: int | None) -> None:
        import lz4.frame

        self._frame = lz4.frame.LZ4FrameCompressor(
            compression_level=level or 0, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False
        )
        self._head: bytes = self._frame.begin()

    def compress(self, data: Buffer) -> bytes:
        head, self._head = self._head, b""
        return head + bytes(self._frame.compress(data))

    def flush(self) -> bytes:
        return self._head + bytes(self._frame.flush())


_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT, _LZ4_BLOCK_CHECKSUMS, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM, _LZ4_DICTIONARY = 32, 16, 8, 4, 1


def _decompress_lz4(data: Buffer, _limit: int, magic: int) -> Iterator[bytes]:
    """Header of a frame: int32 magic, byte flags, byte block size, [int64 content size], [int32 dictionary], byte
    checksum.
    """
    import lz4.frame

    _ensure_begins(data, _LZ4_MAGIC, "lz4 data does not begin as a frame")
    flags = data[4] if len(data) > 4 else 0
    if flags & _LZ4_DICTIONARY:
        raise CorruptRecordError("the lz4 frame needs a dictionary, and Kafka has none")
    if magic == 0 or flags & (_LZ4_CONTENT_SIZE | _LZ4_CONTENT_CHECKSUM):
        data = _with_plain_lz4_header(data, ensures_checksum=magic != 0)
    frame = lz4.frame.LZ4FrameDecompressor()
    feed: Buffer = data
    while True:
        yield frame.decompress(feed, max_length=PIECE_BYTES)
        if frame.eof:
            return
        if frame.needs_input:
            raise CorruptRecordError("lz4 frame is cut short")
        feed = b""


def _with_plain_lz4_header(data: Buffer, *, ensures_checksum: bool) -> bytes:
    """Returns the frame with the header that the library writes for the same flags, without content size and content
    checksum. Raises CorruptRecordError if the header's own checksum is wrong and `ensures_checksum`.
    """
    import lz4.frame

    has_size = bool(data[4] & _LZ4_CONTENT_SIZE) if len(data) > 4 else False
    end = 15 if has_size else 7
    if len(data) < end:
        raise CorruptRecordError("lz4 frame is cut short")
    if ensures_checksum:
        lz4.frame.LZ4FrameDecompressor().decompress(data[:end])
    header: bytes = lz4.frame.compress_begin(
        lz4.frame.create_compression_context(),
        block_size=data[5] >> 4 & 7,
        block_linked=not data[4] & _LZ4_INDEPENDENT,
        block_checksum=bool(data[4] & _LZ4_BLOCK_CHECKSUMS),
    )
    trailer = 4 if data[4] & _LZ4_CONTENT_CHECKSUM else 0
    return header + bytes(data[end : len(data) - trailer if trailer else len(data)])


# --- zstd


class _ZstdCompressors(threading.local):
    """Compressors by level: they are costly to make and may not be shared by threads."""

    def __init__(self) -> None:
        self.by_level: dict[int, Any] = {}


_zstd_compressors = _ZstdCompressors()


@cache
def _zstd() -> Any:  # the module has no types before Python 3.14
    """Returns Python's own module of zstd, or the same for a Python before 3.14."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    level = 3 if level is None else level
    compressors = _zstd_compressors.by_level
    if level not in compressors:
        compressors[level] = _zstd().ZstdCompressor(level)
    compressor = compressors[level]
    compressed: bytes = compressor.compress(data, compressor.FLUSH_FRAME)
    return compressed


def _stream_zstd(level: int | None) -> StreamCompressor:
    stream: StreamCompressor = _zstd().ZstdCompressor(3 if level is None else level)
    return stream


def _decompress_zstd(data: Buffer, _limit: int, _magic: int) -> Iterator[bytes]:
    for frame in _zstd_frames(data):
        yield from _read_zstd_frame(frame)


def _read_zstd_frame(frame: memoryview) -> Iterator[bytes]:
    """Yields what a frame holds, and of one that is cut short what its bytes tell."""
    zstd = _zstd()
    try:
        decompressor = zstd.ZstdDecompressor()
        yield decompressor.decompress(frame, PIECE_BYTES)
        while not (decompressor.eof or decompressor.needs_input):
            yield decompressor.decompress(b"", PIECE_BYTES)
    except zstd.ZstdError as error:
        raise ValueError(error) from error


def _salvage_zstd(data: Buffer, _limit: int, _magic: int) -> Iterator[bytes]:
    end = 0
    try:
        for frame in _zstd_frames(data):
            yield from _read_zstd_frame(frame)
            end += len(frame)
    except CorruptRecordError:
        yield from _read_zstd_frame(memoryview(data)[end:])


_MOST_BLOCKS = 8192
"""The most headers that are looked at in one go."""

_SKIPPABLE = range(0x184D2A50, 0x184D2A60)


def _zstd_frames(data: Buffer) -> Iterator[memoryview]:
    """Yields the frames; walks their blocks, as the decompressor takes a frame that ends early for a whole one (RFC
    8878, 3.1.1), and yields nothing of it from time to time. Raises CorruptRecordError for a frame that needs a
    dictionary.

    Block header: 3 bytes little-endian, bit 0 last, bits 1-2 type (1 = one byte repeated), bits 3-23 size. A skippable
    frame is its magic, int32 little-endian size, and so many bytes.
    """
    start, blocks = 0, 0
    view = memoryview(data)
    while start < len(view):
        head = view[start : start + _ZSTD_HEADER_BYTES]
        position, last = start, True
        if int.from_bytes(head[:4], "little") in _SKIPPABLE:
            position += 8 + (int.from_bytes(head[4:8], "little") if len(head) >= 8 else len(view))
        else:
            _ensure_begins(head, _ZSTD_MAGIC, "zstd data does not begin as a frame")
            position += _zstd_header_size(head)
            last = False
        while not last and position + 3 <= len(view):
            header = int.from_bytes(view[position : position + 3], "little")
            last = bool(header & 1)
            position += 3 + (1 if header >> 1 & 3 == 1 else header >> 3)
            blocks += 1
            if blocks % _MOST_BLOCKS == 0:
                yield view[:0]
            if last and head[4] & _ZSTD_CHECKSUM:
                position += 4
        if not last or position > len(view):
            raise CorruptRecordError("zstd frame is cut short")
        yield view[start:position]
        start = position


def _zstd_header_size(head: memoryview) -> int:
    """Returns the bytes of a frame's header: magic, a descriptor (bits 0-1 size of the dictionary's id, 2 checksum, 5
    no window, 6-7 size of the content's size), window, dictionary, content size. Raises CorruptRecordError.
    """
    descriptor = head[4] if len(head) > 4 else 0
    has_window = not descriptor & 0x20
    start = 5 + has_window
    end = start + (0, 1, 2, 4)[descriptor & 3]
    dictionary = int.from_bytes(head[start:end], "little")
    if dictionary:
        raise CorruptRecordError(f"the zstd frame needs dictionary {dictionary}, and Kafka has none")
    return end + (not has_window, 2, 4, 8)[descriptor >> 6]


_ZSTD_CHECKSUM = 0x04
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_HEADER_BYTES = 18
"""The largest header of a frame."""

_FORMATS = {
    _GZIP_START: "gzip",
    _XERIAL_MAGIC: "a snappy stream",
    _LZ4_MAGIC: "an lz4 frame",
    b"\x02\x21\x4c\x18": "an lz4 frame of the legacy format",
    _ZSTD_MAGIC: "a zstd frame",
    **{number.to_bytes(4, "little"): "a skippable frame" for number in _SKIPPABLE},
}


FRAME_STARTS: tuple[tuple[bytes, ...], ...] = (
    (b"",),
    (_GZIP_START,),
    (b"",),
    tuple(_LZ4_MAGIC + bytes([0x40 | _LZ4_INDEPENDENT | flags]) for flags in range(0, 32, 4)),
    (_ZSTD_MAGIC, *(number.to_bytes(4, "little") for number in _SKIPPABLE)),
)
"""The first bytes of each codec's data for Kafka's readers: for lz4 with version and flags, for snappy any."""

FRAME_START_BYTES = 5


def refused_by_kafka(codec: CompressionType, data: Buffer) -> str | None:
    """Says why Kafka's readers refuse data that is read here; None if they do not.

    Source: org.apache.kafka.common.compress.Lz4BlockInputStream, org.xerial.snappy.SnappyInputStream.
    """
    if codec is CompressionType.LZ4 and len(data) > 4 and not data[4] & _LZ4_INDEPENDENT:
        return "the blocks of the lz4 frame depend on one another, which no Java consumer can read"
    is_xerial = codec is CompressionType.SNAPPY and bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC
    if is_xerial and len(data) >= _XERIAL_HEADER.size and _XERIAL_HEADER.unpack_from(data)[1] < 1:
        return "the snappy stream has a version below 1, which no Java consumer can read"
    return None


class _Codec(NamedTuple):
    compress: Callable[[Buffer, int | None], bytes]
    stream: Callable[[int | None], StreamCompressor]
    decompress: _Decompressor


_CODECS = {
    CompressionType.GZIP: _Codec(_compress_gzip, _stream_gzip, _decompress_gzip),
    CompressionType.SNAPPY: _Codec(_compress_snappy, lambda _level: _SnappyStream(), _decompress_snappy),
    CompressionType.LZ4: _Codec(_compress_lz4, _Lz4Stream, _decompress_lz4),
    CompressionType.ZSTD: _Codec(_compress_zstd, _stream_zstd, _decompress_zstd),
}
