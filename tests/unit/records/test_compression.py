from __future__ import annotations

import contextlib
import gzip
import random
import zlib

import lz4.block
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from core.common.errors import CorruptRecordError, KafkaError
from core.records.compression import (
    PIECE_BYTES,
    CompressionType,
    compress,
    decompress,
    decompressed_pieces,
    refused_by_kafka,
    stream_compressor,
)
from tests.support.for_each import for_each

CODECS = [codec for codec in CompressionType if codec is not CompressionType.NONE]
TEXT = b"the quick brown fox jumps over the lazy dog " * 3000


@pytest.mark.parametrize("codec", CompressionType)
@given(data=st.binary(max_size=2000))
def test_round_trip(codec: CompressionType, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@for_each("codec", CompressionType)
def test_round_trip_of_much(codec: CompressionType) -> None:
    noise = random.Random(1).randbytes(3_000_000)
    for data in (TEXT, noise):
        assert decompress(codec, memoryview(compress(codec, memoryview(data)))) == data


@pytest.mark.parametrize(
    ("codec", "level"), [(CompressionType.GZIP, 9), (CompressionType.LZ4, 12), (CompressionType.ZSTD, 19)]
)
def test_levels_are_the_codecs_own(codec: CompressionType, level: int) -> None:
    stream = stream_compressor(codec, level)
    for best in (compress(codec, TEXT, level), stream.compress(TEXT) + stream.flush()):
        assert decompress(codec, best) == TEXT
        assert len(best) <= len(compress(codec, TEXT))


def test_what_other_libraries_write_is_read() -> None:
    assert (
        decompress(CompressionType.GZIP, gzip.compress(TEXT) + gzip.compress(b"second member"))
        == TEXT + b"second member"
    )
    assert decompress(CompressionType.SNAPPY, snappy.compress(TEXT)) == TEXT  # one raw block, as librdkafka writes
    assert decompress(CompressionType.LZ4, lz4.frame.compress(TEXT, content_checksum=True, store_size=True)) == TEXT
    unsized = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT)
    assert decompress(CompressionType.ZSTD, unsized) == TEXT


SKIPPABLE = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"stuff"
GZIPPED, ZSTD_FRAME = gzip.compress(TEXT), zstandard.ZstdCompressor().compress(TEXT)
XERIAL = compress(CompressionType.SNAPPY, TEXT)
LZ4_FRAME = lz4.frame.compress(TEXT, block_linked=False, content_checksum=True, store_size=True)
WRONG_CHECKSUM = LZ4_FRAME[:-4] + bytes(4)
ZSTD_WITH_DICTIONARY = zstandard.ZstdCompressor(
    dict_data=zstandard.train_dictionary(1000, [b"sample %d, of text %d" % (n, n * n) for n in range(2000)])
).compress(TEXT)
DICTIONARY = zstandard.get_frame_parameters(ZSTD_WITH_DICTIONARY).dict_id
LZ4_LEGACY = (0x184C2102).to_bytes(4, "little") + lz4.block.compress(TEXT)

ODD_FRAMES = {
    "gzip, a member after it": (CompressionType.GZIP, GZIPPED + GZIPPED, 2),
    "gzip, zeros after it": (CompressionType.GZIP, GZIPPED + bytes(100), 1),
    "gzip, junk after it": (CompressionType.GZIP, GZIPPED + b"junk" * 10, 1),
    "gzip, a member's first bytes after it": (CompressionType.GZIP, GZIPPED + GZIPPED[:18], 1),
    "zstd, a skippable frame before it": (CompressionType.ZSTD, SKIPPABLE + ZSTD_FRAME, 1),
    "zstd, several frames": (CompressionType.ZSTD, ZSTD_FRAME + SKIPPABLE + ZSTD_FRAME + SKIPPABLE, 2),
    "lz4, content size and checksum": (CompressionType.LZ4, LZ4_FRAME, 1),
    "lz4, a wrong content checksum": (CompressionType.LZ4, WRONG_CHECKSUM, 1),
    "lz4, another frame after it": (CompressionType.LZ4, LZ4_FRAME + b"junk", 1),
    "snappy, two streams": (CompressionType.SNAPPY, XERIAL + XERIAL, 2),
    "snappy, too few bytes for a block after it": (CompressionType.SNAPPY, XERIAL + b"abc", 1),
}


@pytest.mark.parametrize(("codec", "data", "times"), ODD_FRAMES.values(), ids=ODD_FRAMES)
def test_what_kafkas_readers_take_is_read(codec: CompressionType, data: bytes, times: int) -> None:
    assert decompress(codec, data) == TEXT * times
    assert b"".join(decompressed_pieces(codec, data)) == TEXT * times
    assert refused_by_kafka(codec, data) is None


REFUSED_FRAMES = {
    "gzip, cut in the second member": (CompressionType.GZIP, GZIPPED + GZIPPED[:30], "gzip data is cut short"),
    "gzip, zlib's": (CompressionType.GZIP, zlib.compress(TEXT), "gzip data does not begin.* is zlib's format"),
    "gzip, nothing": (CompressionType.GZIP, b"nonsense", "gzip data does not begin.* is no format that Kafka knows"),
    "zstd, junk after it": (CompressionType.ZSTD, ZSTD_FRAME + b"junk", "does not begin as a frame: 6a756e6b"),
    "zstd, cut in the second": (CompressionType.ZSTD, ZSTD_FRAME + ZSTD_FRAME[:-1], "zstd frame is cut short"),
    "zstd, cut in a skippable": (CompressionType.ZSTD, ZSTD_FRAME + SKIPPABLE[:-1], "zstd frame is cut short"),
    "zstd, a dictionary": (CompressionType.ZSTD, ZSTD_WITH_DICTIONARY, f"needs dictionary {DICTIONARY}"),
    "zstd, a dictionary later": (CompressionType.ZSTD, ZSTD_FRAME + ZSTD_WITH_DICTIONARY, "needs dictionary"),
    "zstd, gzip's": (CompressionType.ZSTD, GZIPPED, "zstd data does not begin as a frame: 1f8b08.. is gzip"),
    "lz4, a skippable frame": (CompressionType.LZ4, SKIPPABLE + LZ4_FRAME, "is a skippable frame"),
    "lz4, legacy": (CompressionType.LZ4, LZ4_LEGACY, "is an lz4 frame of the legacy format"),
    "lz4, cut in its checksum": (CompressionType.LZ4, LZ4_FRAME[:-1], "lz4 frame is cut short"),
    "lz4, a wrong header checksum": (
        CompressionType.LZ4,
        LZ4_FRAME[:14] + b"?" + LZ4_FRAME[15:],
        "headerChecksum_invalid",
    ),
    "lz4, a dictionary": (CompressionType.LZ4, LZ4_FRAME[:4] + b"\x61" + LZ4_FRAME[5:], "needs a dictionary"),
}


@pytest.mark.parametrize(("codec", "data", "why"), REFUSED_FRAMES.values(), ids=REFUSED_FRAMES)
def test_what_is_wrong_with_a_frame_is_named(codec: CompressionType, data: bytes, why: str) -> None:
    for read in (decompress, lambda codec, data: b"".join(decompressed_pieces(codec, data))):
        with pytest.raises(CorruptRecordError, match=why):
            read(codec, data)


def test_what_is_read_and_kafkas_readers_refuse() -> None:
    linked = lz4.frame.compress(TEXT, block_linked=True)
    old = XERIAL[:8] + bytes(8) + XERIAL[16:]
    for codec, data, why in (
        (CompressionType.LZ4, linked, "depend on one another"),
        (CompressionType.SNAPPY, old, "version"),
    ):
        assert decompress(codec, data) == TEXT
        assert why in (refused_by_kafka(codec, data) or "")


def test_what_is_written_others_read() -> None:
    assert gzip.decompress(compress(CompressionType.GZIP, TEXT)) == TEXT
    assert lz4.frame.decompress(compress(CompressionType.LZ4, TEXT)) == TEXT
    assert zstandard.ZstdDecompressor().decompress(compress(CompressionType.ZSTD, TEXT)) == TEXT


def test_snappy_is_written_as_java_writes_it() -> None:
    written = compress(CompressionType.SNAPPY, TEXT)
    assert written[:16] == b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2
    position, blocks = 16, []
    while position < len(written):
        size = int.from_bytes(written[position : position + 4], "big")
        blocks.append(snappy.uncompress(written[position + 4 : position + 4 + size]))
        position += 4 + size
    assert b"".join(blocks) == TEXT
    assert max(map(len, blocks)) == 32 * 1024


def test_lz4_is_written_in_independent_blocks_of_64_kb() -> None:
    info = lz4.frame.get_frame_info(compress(CompressionType.LZ4, TEXT))
    assert (info["block_linked"], info["block_size"]) == (False, 64 * 1024)


def test_a_lz4_frame_of_magic_0_has_a_wrong_header_checksum() -> None:
    frame = bytearray(compress(CompressionType.LZ4, TEXT))
    frame[6] ^= 0xFF
    assert decompress(CompressionType.LZ4, bytes(frame), magic=0) == TEXT
    with pytest.raises(CorruptRecordError):
        decompress(CompressionType.LZ4, bytes(frame), magic=1)


@for_each("codec", CODECS)
def test_a_few_bytes_may_not_become_many(codec: CompressionType) -> None:
    bomb = compress(codec, bytes(50_000_000))
    assert len(bomb) < 3_000_000
    with pytest.raises(
        CorruptRecordError, match=r"more than 1000000 bytes, which is the limit.*--max-expansion or PLOG_MAX_EXPANSION"
    ):
        decompress(codec, bomb, limit=1_000_000)
    assert decompress(codec, compress(codec, TEXT), limit=len(TEXT)) == TEXT


@for_each("codec", CODECS)
def test_cut_data_is_never_taken_for_whole(codec: CompressionType) -> None:
    data = random.Random(2).randbytes(200) + TEXT[:2000]
    whole = compress(codec, data)
    for length in range(len(whole)):
        try:
            found = decompress(codec, whole[:length])
        except CorruptRecordError:
            continue
        assert codec is CompressionType.SNAPPY, "only xerial blocks can end early unnoticed"
        assert data.startswith(found)


@for_each("codec", CODECS)
def test_flipped_bytes_raise_nothing_but_corrupt(codec: CompressionType) -> None:
    whole = bytearray(compress(codec, TEXT[:3000]))
    for position in range(len(whole)):
        whole[position] ^= 0xA5
        with contextlib.suppress(CorruptRecordError):
            decompress(codec, bytes(whole), limit=1_000_000)
        whole[position] ^= 0xA5


def test_names() -> None:
    assert CompressionType.parse("zstd") is CompressionType.ZSTD
    assert CompressionType.LZ4.text == "lz4"
    with pytest.raises(KafkaError, match="unknown compression type 'brotli', expected one of none, gzip"):
        CompressionType.parse("brotli")


@pytest.mark.parametrize("claimed", [None, 0, 10_000_000])
def test_gzip_beyond_the_limit_whatever_it_claims(claimed: int | None) -> None:
    """By the size at its end, or by what comes out."""
    data = gzip.compress(bytes(20_000_000))
    if claimed is not None:
        data = data[:-4] + claimed.to_bytes(4, "little")
    with pytest.raises(CorruptRecordError, match="expands to more than 10000000 bytes"):
        decompress(CompressionType.GZIP, data, limit=10_000_000)


# --- piece by piece


@for_each("codec", CompressionType)
def test_pieces_are_small_and_make_the_whole(codec: CompressionType) -> None:
    for data in (b"", TEXT, TEXT * 40, random.Random(1).randbytes(3_000_000)):
        compressed = compress(codec, data)
        pieces = list(decompressed_pieces(codec, compressed))
        assert b"".join(pieces) == data
        assert max(map(len, pieces), default=0) <= PIECE_BYTES


@for_each("codec", CODECS)
def test_others_may_be_decompressed_between_two_pieces(codec: CompressionType) -> None:
    """A library's context may be one for all."""
    contents = [random.Random(n).randbytes(3_000_000) for n in range(3)]
    readers = [decompressed_pieces(codec, compress(codec, data)) for data in contents]
    found = [b"", b"", b""]
    while readers:
        for number, reader in enumerate(readers):
            piece = next(reader, None)
            if piece is None:
                assert found == contents
                return
            found[number] += piece
            assert decompress(codec, compress(codec, TEXT)) == TEXT


@for_each("codec", CompressionType)
@for_each("size", [0, 1, 1000, 100_000])
def test_what_is_compressed_piece_by_piece(codec: CompressionType, size: int) -> None:
    stream = stream_compressor(codec)
    data = (TEXT * 3)[: size * 3]
    parts = [stream.compress(memoryview(data)[start : start + size]) for start in range(0, len(data), size or 1)]
    whole = b"".join((*parts, stream.flush()))
    assert decompress(codec, whole) == data if whole or size else not data


def test_very_many_members_of_gzip_take_as_many_pieces() -> None:
    """What a member leaves over is copied: of little at a time."""
    data = gzip.compress(b"") * 20_000
    assert sum(1 for _ in decompressed_pieces(CompressionType.GZIP, data)) >= 20_000


def test_very_many_blocks_of_zstd_are_counted_in_pieces() -> None:
    """A block may hold nothing at all."""
    frame = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    head = frame.compress(b"abc") + frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    data = head + bytes(3) * 30_000 + frame.flush()
    pieces = list(decompressed_pieces(CompressionType.ZSTD, data))
    assert b"".join(pieces) == b"abc"
    assert len(pieces) > 3
