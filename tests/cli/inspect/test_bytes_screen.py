"""The screen of bytes: hex, the field under the cursor, the ways from field to field, and what is inside."""

from __future__ import annotations

import os
import re
import shutil
import struct
from pathlib import Path

import pytest
from textual.pilot import Pilot

import cli.inspect.bytes_screen
from cli.inspect.bytes_screen import BytesScreen
from cli.inspect.line_view import ASCII
from cli.inspect.records_screen import RecordsScreen
from core.inspector.check.findings import Code
from core.inspector.check.verify import verify
from core.records.checksum import crc32c
from core.view.bytes import batch_lookup
from tests.cli.inspect.support import inspecting, press, screen_text, settled, status, type_text, until, with_loop
from tests.support.golden import GOLDEN, SAMPLE_DATA

LOG = SAMPLE_DATA / "partition" / "txn_multisegment-0" / "00000000000000000000.log"
GZIP = GOLDEN / "codec_gzip_java" / "00000000000000000000.log"
DAMAGED = SAMPLE_DATA / "damaged" / "c_bitflip_middle-0" / "00000000000000000000.log"
SECURED = GOLDEN.parent / "secured" / "__cluster_metadata-0" / "00000000000000000000.log"


def bytes_screen(pilot: Pilot[None]) -> BytesScreen:
    screen = pilot.app.screen
    assert isinstance(screen, BytesScreen)
    screen.view.check_invariants()
    return screen


def cursor(pilot: Pilot[None]) -> int:
    return bytes_screen(pilot).view.position


def shown_bytes(text: str) -> dict[int, bytes]:
    """The lines of hex, by the positions before them."""
    lines = re.findall(r"^ ([0-9a-f]{8}) [^0-9a-f]?((?:[0-9a-f]{2}[^0-9a-f])+)", text, re.MULTILINE)
    return {int(start, 16): bytes.fromhex(re.sub(r"[^0-9a-f]", "", pairs)) for start, pairs in lines}


def panel(text: str) -> str:
    """What stands below the bytes."""
    return text.partition("────")[2].lstrip("─\n")


async def go(pilot: Pilot[None], text: str) -> None:
    """As if it were typed after `:`, which takes longer."""
    bytes_screen(pilot).go(text)
    await settled(pilot)


async def search(pilot: Pilot[None], text: str) -> None:
    """As if it were typed after `/`."""
    bytes_screen(pilot)._search(text)
    await settled(pilot)


@with_loop
async def test_bytes_are_those_of_the_file_and_the_field_is_explained() -> None:
    async with inspecting(LOG) as pilot:
        text = screen_text(pilot.app)
        assert text.startswith(" 00000000000000000000.log  log, 16001 bytes")
        found = shown_bytes(text)
        assert len(found) == 13
        data = LOG.read_bytes()
        assert all(data[start : start + 16] == line for start, line in found.items())
        assert "[00 00 00 00 00 00 00 00]00 00 01 98│00" in text
        assert "batch at 0, offsets 0 to 2 > base offset\n value: 0\n bytes 0 to 7, 8 of them" in panel(text)
        assert "The offset of the batch's first record." in text
        assert "see docs/format/record-batch.md" in text


@pytest.mark.longer
@with_loop
async def test_keys_go_by_byte_line_field_record_and_batch() -> None:
    async with inspecting(LOG) as pilot:
        moves = [
            ("down right", 17), ("up left", 0), ("tab tab right", 13), ("shift+tab", 12), ("shift+tab", 8),
            ("n n", 194), ("p", 61), ("right_square_bracket right_square_bracket", 689),
            ("left_square_bracket p", 323), ("home", 0),
        ]  # fmt: skip
        for keys, position in moves:
            await pilot.press(*keys.split())
            await settled(pilot)
            assert cursor(pilot) == position, keys
        await pilot.press(*["tab"] * 5, *["right_square_bracket"] * 2)
        await settled(pilot)
        assert cursor(pilot) == 689, "keys pressed in a row are all obeyed"
        await press(pilot, "end", "n")
        assert status(pilot.app) == "nothing follows"


@pytest.mark.longer
@with_loop
async def test_a_place_is_a_position_an_offset_or_another_partitions() -> None:
    async with inspecting(LOG) as pilot:
        await press(pilot, "colon")
        await type_text(pilot, "0x1a4")
        assert cursor(pilot) == 420
        await go(pilot, "3539")
        assert "control batch at 3473, offset 33 > record 0, offset 33 > key" in screen_text(pilot.app)
        assert "(ABORT)" in screen_text(pilot.app)
        await go(pilot, "@4")
        assert cursor(pilot) == 549
        await go(pilot, "@5000")
        assert status(pilot.app) == "offset 5000 is not in these bytes"
        await go(pilot, "16001")
        assert "beyond the end" in status(pilot.app)
        await go(pilot, "@4")
        assert bytes_screen(pilot).command_line() == f"plog dump-segment {LOG} --hex"
        await press(pilot, "r")
        assert shown_record(pilot) == 4
        await press(pilot, "escape")
        await go(pilot, "txn_multisegment@7")
        assert shown_record(pilot) == 7


def shown_record(pilot: Pilot[None]) -> int:
    screen = pilot.app.screen
    assert isinstance(screen, RecordsScreen)
    assert screen.view.item is not None
    return screen.view.item.row.offset


@with_loop
async def test_what_is_compressed_is_shown_by_enter() -> None:
    async with inspecting(GZIP) as pilot:
        await press(pilot, "right_square_bracket", "enter")
        text = screen_text(pilot.app)
        assert text.startswith(" uncompressed, batch at 954, offsets 23 to 43")
        assert "record 0, offset 23 > record length" in " ".join(text.split())
        await press(pilot, "n")
        assert "record 1, offset 24" in screen_text(pilot.app)
        await press(pilot, "enter")
        assert "nothing more is inside" in status(pilot.app)
        await go(pilot, "@30")
        assert "record 7, offset 30" in screen_text(pilot.app)
        await press(pilot, "escape")
        assert cursor(pilot) == 954
        pilot.app.open_bytes(LOG)  # type: ignore[attr-defined]
        await settled(pilot)
        await press(pilot, "enter")
        assert "nothing is compressed here" in status(pilot.app)


@pytest.mark.longer
@with_loop
async def test_an_entry_of_an_index_leads_to_its_batch() -> None:
    async with inspecting(LOG.with_suffix(".index")) as pilot:
        await press(pilot, "n", "enter")
        assert cursor(pilot) == 689
        assert screen_text(pilot.app).startswith(" 00000000000000000000.log")
        pilot.app.open_bytes(LOG.with_suffix(".timeindex"))  # type: ignore[attr-defined]
        await settled(pilot)
        await press(pilot, "enter")
        assert "record 2, offset 5" in screen_text(pilot.app)


@pytest.mark.longer
@with_loop
async def test_text_and_hex_are_found_and_found_again() -> None:
    data = LOG.read_bytes()
    async with inspecting(LOG) as pilot:
        await press(pilot, "slash")
        await type_text(pilot, "zebra")
        first = data.find(b"zebra")
        assert cursor(pilot) == first
        assert status(pilot.app) == f"found at {first} (0x{first:x}), 5 bytes"
        await press(pilot, "slash", "enter")
        assert cursor(pilot) == data.find(b"zebra", first + 1)
        await search(pilot, "54 22 c4 3b")
        assert cursor(pilot) == 3490
        await search(pilot, "nowhere")
        assert status(pilot.app) == "'nowhere' is not in these bytes"
        assert cursor(pilot) == 3490


@with_loop
async def test_damage_and_secrets_are_told_without_colours() -> None:
    async with inspecting(DAMAGED) as pilot:
        (position,) = (finding.position for finding in verify(DAMAGED) if finding.code is Code.CRC_MISMATCH)
        await go(pilot, str(position))
        text = screen_text(pilot.app)
        assert "> damaged" in text
        assert f"crc-mismatch at {position}" in text
        assert "see docs/findings.md" in text
        pilot.app.open_bytes(SECURED, SECURED.read_bytes().find(b"changeit"))  # type: ignore[attr-defined]
        await settled(pilot)
        text = screen_text(pilot.app)
        assert "value: [hidden]" in text
        assert "** ** **" in text
        assert "changeit" not in text
        assert " on 0x" not in panel(text)


@pytest.mark.parametrize(("size", "count"), [((60, 24), 8), ((40, 20), 4), ((160, 48), 16)])
def test_lines_fit_the_terminal(size: tuple[int, int], count: int) -> None:
    @with_loop
    async def run() -> None:
        async with inspecting(LOG, size=size, glyphs=ASCII) as pilot:
            await go(pilot, "66")
            text = screen_text(pilot.app)
            data = LOG.read_bytes()
            found = shown_bytes(text)
            assert found
            assert all(len(line) == count for line in found.values())
            assert all(data[start : start + count] == line for start, line in found.items())
            assert "value: 4" in text
            assert "record 0, offset 0 > key length" in " ".join(text.split())
            assert text.isascii()
            assert max(map(len, text.splitlines())) <= size[0]

    run()


@with_loop
async def test_a_click_puts_the_cursor_on_a_byte_and_another_width_keeps_it() -> None:
    async with inspecting(LOG, size=(160, 48)) as pilot:
        await pilot.click("#bytes", offset=(10 + 3 * 3, 2))
        await settled(pilot)
        assert cursor(pilot) == 2 * 16 + 3
        await pilot.click("#bytes", offset=(10 + 3 * 16 + 2 + 5, 1))
        await settled(pilot)
        assert cursor(pilot) == 16 + 5
        await go(pilot, "5000")
        await pilot.resize_terminal(60, 24)
        await settled(pilot)
        assert cursor(pilot) == 5000
        assert 5000 in shown_bytes(screen_text(pilot.app))


@with_loop
async def test_a_file_that_grows_is_cut_or_goes_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    path = folder / LOG.name
    data = LOG.read_bytes()
    path.write_bytes(data[:430])
    async with inspecting(path) as pilot:
        await press(pilot, "end")
        assert "torn-tail at 420, 10 bytes > damaged" in screen_text(pilot.app)
        below = bytes_screen(pilot)
        await press(pilot, "question_mark")
        path.write_bytes(data[:2000])
        below._look_again()
        await settled(pilot)
        assert below.view.size_bytes == 430, "what is not on top is not read"
        await press(pilot, "escape")
        await look_again(pilot)
        assert "batch at 420, offsets 3 to 5 > length" in screen_text(pilot.app)
        os.truncate(path, 420)
        await look_again(pilot)
        assert cursor(pilot) == 419
        assert "420 bytes" in screen_text(pilot.app)
        path.unlink()
        await look_again(pilot)
        assert "the file was deleted since" in status(pilot.app)
        assert "record 2, offset 2" in screen_text(pilot.app)
        other = folder / f"{3:020d}.log"
        other.write_bytes(data[420:2000])
        pilot.app.push_screen(BytesScreen(other, offset=9999))
        await settled(pilot)
        assert status(pilot.app) == "offset 9999 is not in this file"
        assert is_open(other)
        await press(pilot, "escape")
        await until(pilot, lambda: not is_open(other))


def is_open(path: Path) -> bool:
    """Says whether this process has a descriptor of that file."""
    return any(link.samefile(path) for link in Path("/proc/self/fd").iterdir() if link.exists())


async def look_again(pilot: Pilot[None]) -> None:
    bytes_screen(pilot)._look_again()
    await settled(pilot)


@with_loop
async def test_what_is_found_slowly_shows_its_bytes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.inspect.bytes_screen, "REPORT_SECONDS", 0)
    monkeypatch.setattr(batch_lookup, "_FAR_BYTES", 1 << 40)
    path = tmp_path / LOG.name
    shutil.copy(LOG, path)
    seen: list[str] = []
    async with inspecting(path) as pilot:
        screen = bytes_screen(pilot)
        monkeypatch.setattr(screen, "tell", lambda text: seen.append(text))
        await press(pilot, "end")
        assert [text for text in seen if re.fullmatch(r"looking for what lies here: \d+% read", text)]
        assert seen[-1] == ""
        assert screen.view.field is not None


@with_loop
async def test_files_of_no_kind_empty_ones_and_none_are_told_apart(tmp_path: Path) -> None:
    other = tmp_path / "t-0"
    shutil.copytree(LOG.parent, other)
    (other / "notes").write_bytes(b"\x1b[31mred\n")
    async with inspecting(other / "notes") as pilot:
        assert "a file of no known kind, 9 bytes" in screen_text(pilot.app)
        assert ".[31mred." in screen_text(pilot.app)
        assert bytes_screen(pilot).command_line() is None
        (other / "empty").touch()
        pilot.app.open_bytes(other / "empty")  # type: ignore[attr-defined]
        await settled(pilot)
        assert "the file is empty" in screen_text(pilot.app)
        await press(pilot, "n", "tab", "end", "enter", "r", "down")
        await search(pilot, "x")
        await go(pilot, "0")
        assert "beyond the end" in status(pilot.app)
        pilot.app.open_bytes(tmp_path / "00000000000000000000.log")  # type: ignore[attr-defined]
        await settled(pilot)
        assert "no such file" in status(pilot.app)
        assert "nothing can be shown" in screen_text(pilot.app)
        await press(pilot, "n", "enter", "r")
        await search(pilot, "x")


@with_loop
async def test_records_that_do_not_decompress_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    path = folder / GZIP.name
    data = bytearray(GZIP.read_bytes()[:954])
    data[70:80] = bytes(10)
    data[17:21] = struct.pack(">I", crc32c(memoryview(data)[21:]))
    path.write_bytes(data)
    async with inspecting(path) as pilot:
        await press(pilot, "enter")
        assert "gzip" in status(pilot.app)
        assert bytes_screen(pilot).path == path
