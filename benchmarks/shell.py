"""`plog produce` and `plog consume` in a pipeline beside kcat, on one plog broker, and embedded.

    .venv/bin/python -m benchmarks.shell [--lines 1000000] [--rounds 5]

Lines of 200 bytes, `cat lines | plog produce` and `plog consume | cat >/dev/null`, in turns, each round on a topic of
its own. Lines a second by the clock, CPU seconds of the client, its largest resident memory. Embedded, the engine is in
the command's own process.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import quotients, spread
from benchmarks.options import ensure_programs, option_parser
from benchmarks.peers import Command, PlogPeer, environment_of, running, scratch_folder
from tests.support.server import PLOG


class Run(NamedTuple):
    wall_s: float
    cpu_s: float
    resident_bytes: int


def measure(command: Command, stdin: Path | None = None) -> Run:
    """`cat stdin | command | cat >/dev/null`: of the command, which must succeed."""
    started = time.monotonic()
    source = subprocess.Popen(["cat", stdin or os.devnull], stdout=subprocess.PIPE)
    process = subprocess.Popen(
        command, stdin=source.stdout, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment_of()
    )
    sink = subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL)
    for pipe in (source.stdout, process.stdout):
        assert pipe is not None
        pipe.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    sink.wait()
    source.wait()
    assert process.returncode == 0, command
    return Run(time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def write_lines(path: Path, count: int) -> None:
    """JSON objects of 200 bytes each, the newline included."""
    rnd = random.Random(1)
    words = "lorem ipsum dolor sit amet " * 8
    with path.open("w") as out:
        for number in range(count):
            head = f'{{"n": {number}, "id": "{rnd.getrandbits(64):016x}", "words": "'
            out.write(f'{head}{words[: 197 - len(head)]}"}}\n')


def compare(what: str, lines: int, ours: list[Run], theirs: list[Run] | None) -> None:
    speed = [lines / run.wall_s / 1e6 for run in ours]
    resident = max(run.resident_bytes for run in ours) / 1e6
    cpu = [run.cpu_s for run in ours]
    row = [what, f"{spread(speed, '.2f')} M/s", f"{spread(cpu, '.2f')} s", f"{resident:.0f} MB"]
    if theirs is None:
        row += ["", "", ""]
    else:
        kcat_speed = [lines / run.wall_s / 1e6 for run in theirs]
        row.append(f"{spread(kcat_speed, '.2f')} M/s")
        row.append(spread(quotients(speed, kcat_speed), ".2f"))
        row.append(spread(quotients([run.cpu_s for run in theirs], cpu), ".2f"))
    print("| " + " | ".join(row) + " |", flush=True)


def main() -> None:
    options = option_parser(__doc__, lines=1_000_000, rounds=5).parse_args()
    ensure_programs("kcat")
    with scratch_folder() as directory:
        lines = directory / "lines"
        write_lines(lines, options.lines)
        print(f"{options.lines:,} lines, {options.rounds} rounds, kcat {kcat_version()}, {sys.version.split()[0]}\n")
        print("| | plog, lines | CPU | memory | kcat, lines | times kcat's speed | times less CPU |")
        print("|---|---|---|---|---|---|---|")
        with running(directory, PlogPeer) as (peer,):
            served(peer.address, lines, options.lines, options.rounds)
        embedded(directory, lines, options.lines, options.rounds)


def served(address: str, path: Path, lines: int, rounds: int) -> None:
    server = ["--bootstrap-server", address]
    produced: dict[str, list[Run]] = {"plog": [], "kcat": []}
    consumed: dict[str, list[Run]] = {"value": [], "envelope": [], "kcat": [], "kcat envelope": []}
    back: list[Run] = []
    for number in range(rounds):
        for name, command in in_turns(
            number,
            ("plog", [PLOG, "produce", f"plog-{number}", *server]),
            ("kcat", ["kcat", "-P", "-b", address, "-t", f"kcat-{number}"]),
        ):
            produced[name].append(measure(command, path))
        topic = f"plog-{number}"
        kcat = ["kcat", "-C", "-b", address, "-t", topic, "-o", "beginning", "-e", "-q"]
        for name, command in in_turns(
            number,
            ("value", [PLOG, "consume", topic, *server]),
            ("kcat", kcat),
            ("envelope", [PLOG, "consume", topic, "--format", "envelope", *server]),
            ("kcat envelope", [*kcat, "-J"]),
        ):
            consumed[name].append(measure(command))
        envelopes = path.with_name("envelopes")
        with envelopes.open("wb") as out:
            subprocess.run([PLOG, "consume", topic, "--format", "envelope", *server], check=True, stdout=out)
        back.append(measure([PLOG, "produce", f"back-{number}", "--format", "envelope", *server], envelopes))
    compare("produce", lines, produced["plog"], produced["kcat"])
    compare("consume, values", lines, consumed["value"], consumed["kcat"])
    compare("consume, envelopes (kcat: -J)", lines, consumed["envelope"], consumed["kcat envelope"])
    compare("produce, envelopes", lines, back, None)


def embedded(directory: Path, path: Path, lines: int, rounds: int) -> None:
    runs: dict[str, list[Run]] = {}
    for number in range(rounds):
        where: Command = ["--data-dir", directory / f"embedded-{number}"]
        for name, command, source in (
            ("produce, embedded", [PLOG, "produce", "t", *where], path),
            ("consume, values, embedded", [PLOG, "consume", "t", *where], None),
            ("consume, envelopes, embedded", [PLOG, "consume", "t", "--format", "envelope", *where], None),
            ("consume, a filter on JSON, embedded", [PLOG, "consume", "t", "--filter", "value.n < 1000", *where], None),
        ):
            runs.setdefault(name, []).append(measure(command, source))
    for name, found in runs.items():
        compare(name, lines, found, None)


def in_turns(number: int, *runs: tuple[str, Command]) -> list[tuple[str, Command]]:
    return list(runs) if number % 2 == 0 else list(reversed(runs))


def kcat_version() -> str:
    out = subprocess.run(["kcat", "-V"], capture_output=True, check=False).stdout.decode()
    found = re.search(r"Version (\S+)", out)
    return found[1] if found else "unknown"


if __name__ == "__main__":
    main()
