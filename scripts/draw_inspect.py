"""Makes docs/inspect-*.svg, the pictures of `plog inspect` in the README and in docs/inspect.md, of what its screens
really show.

.venv/bin/python scripts/draw_inspect.py
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cli.inspect.line_view import UNICODE  # noqa: E402
from cli.inspect.screen import InspectApp  # noqa: E402
from core.pipeline.session import Session  # noqa: E402
from core.view.target.inspect_target import open_places  # noqa: E402

PREPARED = """
plog topic create flights --partitions 4 --set retention.ms=-1 --set segment.bytes=1048576 --data-dir data
zcat sample-data/flights-2013-01.ndjson.gz | plog produce flights --key-field tailnum --timestamp-field time \
    --batch-size 8192 --compression lz4 --data-dir data
plog consume flights --group etl --max-messages 9000 --data-dir data >/dev/null
plog consume flights --group dashboard --max-messages 26000 --data-dir data >/dev/null
plog topic create orders --data-dir data
echo one | plog produce orders --data-dir data
"""
SIZE = (110, 30)
"""Columns and lines of the terminal."""


class Picture(NamedTuple):
    """`keys` are pressed one after the other; a text that begins with > is typed into the line at the bottom."""

    name: str
    place: tuple[str, ...]
    keys: tuple[str, ...] = ()


PICTURES = (
    Picture("records", ("data", "flights:2@700"), ("slash", '>value.dest == "SFO"', "down", "down")),
    Picture("topics", ("data",)),
    Picture("record", ("data", "flights:2@700"), ("enter",)),
    Picture("map", ("damaged/c_bitflip_middle-0/",), ("m", "v", "escape", "n")),
    Picture("bytes", ("txn_multisegment-0/",), ("b", "tab", "tab", "tab", "tab", "tab", "tab")),
    Picture("verify", ("damaged",), ("v",)),
    Picture("groups", ("data",), ("g", "enter")),
)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copytree(ROOT / "sample-data" / "partition" / "txn_multisegment-0", folder / "txn_multisegment-0")
        shutil.copytree(ROOT / "sample-data" / "damaged", folder / "damaged")
        (folder / "sample-data").symlink_to(ROOT / "sample-data")
        environment = {**os.environ, "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"}
        subprocess.run(["bash", "-ec", PREPARED], cwd=folder, check=True, env=environment, stdout=subprocess.DEVNULL)
        os.chdir(folder)
        for picture in PICTURES:
            svg = asyncio.run(drawn(picture))
            (ROOT / "docs" / f"inspect-{picture.name}.svg").write_text(svg, encoding="utf-8")
            print(f"docs/inspect-{picture.name}.svg")


async def drawn(picture: Picture) -> str:
    opened = open_places(list(picture.place), Session(directory=Path("data")), lambda text: Path(text).exists())
    app = InspectApp(opened, glyphs=UNICODE)
    app.theme = "textual-dark"
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        for key in picture.keys:
            if key.startswith(">"):
                app.screen.query_one("#prompt").value = key[1:]  # type: ignore[attr-defined]
                key = "enter"
            await pilot.press(key)
            await settle(app, pilot)
        return without_fonts(app.export_screenshot(title=f"plog inspect {' '.join(picture.place)}"))


async def settle(app: InspectApp, pilot: object) -> None:
    """Waits until all that was begun is done."""
    quiet, begun = 0, -1
    while quiet < 5:
        await pilot.pause(0.02)  # type: ignore[attr-defined]
        quiet = quiet + 1 if app.is_idle and begun == app.jobs_begun else 0
        begun = app.jobs_begun


def without_fonts(svg: str) -> str:
    """Leaves out the fonts that the picture would fetch from elsewhere: the reader's own are as good."""
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    main()
