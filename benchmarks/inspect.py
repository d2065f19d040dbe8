"""`plog inspect` on a large partition: CPU until the first screen, CPU for a key, memory; beside a Textual app that
shows nothing, so that what Textual costs can be told from what plog does.

    .venv/bin/python -m benchmarks.inspect [--gigabytes 10] [--rounds 5] [--segment-records 500000] [--presses 60]

The partition has segments of 97 MB whose batches differ in their offsets alone, which no checksum covers; its indexes
are hard links of one. A key is pressed so many times, or ten times if it goes to an end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# Nothing of the other benchmarks: what the measured process imports is measured.

ROOT = Path(__file__).resolve().parents[1]
PLOG = Path(sys.executable).with_name("plog")
KEYS = ("down", "pagedown", "pageup", "end", "home")
JUMPS = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--segment-records", type=int, default=500_000)
    parser.add_argument("--presses", type=int, default=60)
    parser.add_argument("--measure", choices=("plog", "textual"), help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help="a directory that was made before, with topic big")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(asyncio.run(measured(options.measure, options.directory, options.presses))))
        return
    if find_spec("textual") is None:
        raise SystemExit("error: this needs textual, of plog's extra ui")
    with tempfile.TemporaryDirectory(prefix="plog-benchmark-") as temporary:
        directory = options.directory or made(Path(temporary), options.gigabytes, options.segment_records)
        rounds = [
            {name: run(name, directory, options.presses) for name in ("plog", "textual")} for _ in range(options.rounds)
        ]
    for name in ("plog", "textual"):
        print(name)
        for figure in rounds[0][name]:
            values = sorted(one[name][figure] for one in rounds)
            print(f"  {figure:<22} {statistics.median(values):8.1f}  ({values[0]:.1f} to {values[-1]:.1f})")


def run(name: str, directory: Path, presses: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.inspect", "--measure", name, "--directory", str(directory)]
    done = subprocess.run([*command, "--presses", str(presses)], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    found: dict[str, float] = json.loads(done.stdout)
    return found


async def measured(name: str, directory: Path, presses: int) -> dict[str, float]:
    app = make_app(name, directory)
    async with app.run_test(size=(160, 48)) as pilot:
        await settled(app, pilot)
        figures = {"first screen, CPU ms": 1000 * time.process_time()}
        for key in KEYS:
            costs = []
            for _ in range(min(presses, 10) if key in ("end", "home") else presses):
                before = time.process_time()
                await pilot.press(key)
                await settled(app, pilot)
                costs.append(1000 * (time.process_time() - before))
            costs.sort()
            figures |= {f"{key}, p50 CPU ms": statistics.median(costs), f"{key}, p95": costs[int(0.95 * len(costs))]}
        if name == "plog":
            figures |= await jumps(app, pilot, min(JUMPS, presses))
    figures["memory, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


async def jumps(app: Any, pilot: Any, count: int) -> dict[str, float]:
    costs = []
    for _ in range(count):
        before = time.process_time()
        app.screen.go_to(random.randrange(app.screen.view.bounds[1]))
        await settled(app, pilot)
        costs.append(1000 * (time.process_time() - before))
    costs.sort()
    return {"jump, p50 CPU ms": statistics.median(costs), "jump, p95": costs[int(0.95 * count)]}


def make_app(name: str, directory: Path) -> Any:
    if name == "textual":
        from textual.app import App

        return App()
    from cli.inspect.screen import InspectApp
    from core.pipeline.session import Session
    from core.view.target.inspect_target import open_places

    return InspectApp(open_places([str(directory), "big"], Session(directory=directory), lambda text: "/" in text))


async def settled(app: Any, pilot: Any) -> None:
    while not getattr(app, "is_idle", True):
        await asyncio.sleep(0.001)
    await pilot.pause()


def made(folder: Path, gigabytes: float, records: int) -> Path:
    """Makes a data directory with the topic `big`, of that size, in segments of so many records."""
    one = folder / "one"
    text = "lorem ipsum dolor " * 8
    lines = "".join(f'k{n % 1000}:{{"i":{n},"msg":"{text}"}}\n' for n in range(records)).encode()
    where = ["--data-dir", str(one)]
    create: list[str | Path] = [PLOG, "topic", "create", "big", "--set", "segment.bytes=110000000", *where]
    subprocess.run(create, check=True, stdout=subprocess.DEVNULL)
    produce: list[str | Path] = [PLOG, "produce", "big", "--key-separator", ":", "--batch-size", "16384", *where]
    subprocess.run(produce, input=lines, check=True)
    source, target = one / "big-0", folder / "many" / "big-0"
    shutil.copytree(one, folder / "many", ignore=shutil.ignore_patterns("big-0", ".lock"))
    target.mkdir()
    for name in ("partition.metadata", "leader-epoch-checkpoint"):
        shutil.copy(source / name, target)
    data = bytearray((source / f"{0:020}.log").read_bytes())
    starts = batch_starts(data)
    for number in range(max(round(gigabytes * 1e9 / len(data)), 1)):
        first = number * records
        (target / f"{first:020}.log").write_bytes(data)
        for suffix in (".index", ".timeindex"):
            os.link(source / f"{0:020}{suffix}", target / f"{first:020}{suffix}")
        os.link(source / f"{records:020}.snapshot", target / f"{first + records:020}.snapshot")
        for start in starts:
            data[start : start + 8] = (int.from_bytes(data[start : start + 8], "big") + records).to_bytes(8, "big")
    return folder / "many"


def batch_starts(data: bytearray) -> list[int]:
    starts, position = [], 0
    while position < len(data):
        starts.append(position)
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return starts


if __name__ == "__main__":
    main()
