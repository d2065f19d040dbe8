"""Makes docs/session.svg: commands typed in a fresh folder, with what they really print.

.venv/bin/python scripts/record_session.py
"""

from __future__ import annotations

import io
import os
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = """
plog topic create flights --partitions 2 --set retention.ms=-1
zcat sample-data/flights-2013-01.ndjson.gz | plog produce flights --key-field tailnum --timestamp-field time
plog topic describe flights
plog consume flights --filter 'value.dest == "SFO" and value.dep_delay > 180' --format '%d{strftime[%F]} %k %o\\n'
plog consume flights --group etl --max-messages 20000 | wc -l
plog group describe etl
plog verify sample-data/damaged | head -12
plog recover sample-data/damaged | head -14
""".strip()
WIDTH = 132


def main() -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "sample-data").symlink_to(ROOT / "sample-data")
        environment = {
            **os.environ, "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}", "PLOG_DATA_DIR": "data",
            "NO_COLOR": "1", "PLOG_CONFIG": os.devnull,
        }  # fmt: skip
        for command in COMMANDS.split("\n"):
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            done = subprocess.run(
                ["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                check=False,
            )  # fmt: skip
            console.print(Text(done.stdout.decode().replace(temporary + "/", "").rstrip()))
            console.print()
    console.save_svg(str(ROOT / "docs" / "session.svg"), title="plog")


if __name__ == "__main__":
    main()
