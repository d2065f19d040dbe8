"""Makes small mistakes in a copy of the code, one after the other, and says which tier of the tests notices each.

The mistakes are in `tests/mutants/AREA.toml`. Exits with 1 if one survives without a reason, or does not fit the code,
and with 3 if the tests fail without any mistake. With --sample a program makes the mistakes: `mutate_sample.py`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from tests.support.mutants import ROOT, Mutant, areas, read_mutants
from tests.support.time_limit import HANGS

_EXAMPLES = """examples:
  scripts/mutate                    all areas, about a quarter of an hour
  scripts/mutate log index          these two
  scripts/mutate log -k retention   those whose sentence or file has that word
  scripts/mutate --list             only name them
  scripts/mutate --map build/map tests/unit tests/cli   note which tests touch which line; half an hour
  scripts/mutate --sample 1000 --map build/map --out build/mutants.ndjson    half an hour to an hour
  scripts/mutate --sample 1000 --map build/map --out build/after.ndjson --again build/mutants.ndjson
"""

_MOST_SECONDS = 180
"""Of the machine. A test that takes longer hangs, and has noticed."""

FIRST, LONGER, SURVIVED, EQUAL, BROKEN = "caught", "by --all", "SURVIVED", "equal", "BROKEN"
_TIERS = {FIRST: (), LONGER: ("--all",)}
_PASSED, _FAILED, _NONE = 0, 1, 5
"""Pytest's exit codes. Any other says that the tests did not run, so that they could not notice anything."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/mutate",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("area", nargs="*", help=f"one of {', '.join(areas())}; all of them if none is given")
    parser.add_argument("-k", metavar="WORD", default="", help="only mutants whose sentence or file has that word")
    parser.add_argument("--list", action="store_true", help="only name the mutants, and change nothing")
    parser.add_argument(
        "--map", type=Path, metavar="FOLDER", help="makes a map of lines there, or reads it for --sample"
    )
    parser.add_argument("--sample", type=int, metavar="COUNT", help="tries so many mutants that a program makes")
    parser.add_argument("--seed", type=int, default=51, help="of the sample")
    parser.add_argument("--out", type=Path, default=Path("build/mutants.ndjson"), help="a line for each of the sample")
    parser.add_argument("--again", type=Path, metavar="FILE", help="an earlier --out: what it caught is to be caught")
    arguments = parser.parse_args()
    if arguments.sample is not None or arguments.map is not None:
        if arguments.map is None:
            parser.error("--sample needs the --map that tells which tests touch a line")
        from scripts.mutate_sample import make_map, run_sample

        if arguments.sample is None:
            return make_map(arguments.map, arguments.area)
        return run_sample(arguments.sample, arguments.seed, arguments.map, arguments.out, again=arguments.again)
    unknown = set(arguments.area) - set(areas())
    if unknown:
        parser.error(f"there is no area {', '.join(sorted(unknown))}, only {', '.join(areas())}")
    mutants = [
        mutant
        for area in arguments.area or areas()
        for mutant in read_mutants(area)
        if arguments.k in f"{mutant.what} {mutant.file}"
    ]
    if not mutants:
        parser.error(f"no mutant there has {arguments.k!r} in its sentence or file")
    if arguments.list:
        for mutant in mutants:
            print(f"{mutant.area}: {mutant.what} ({mutant.file})")
        return 0
    with tempfile.TemporaryDirectory(prefix="plog-mutate-") as folder:
        return _run(mutants, Path(folder) / "plog")


def _run(mutants: Sequence[Mutant], copy: Path) -> int:
    shutil.copytree(ROOT, copy, ignore=_not_copied)
    asked = [mutant for mutant in mutants if not mutant.equal]
    tests = sorted({test for mutant in asked for test in mutant.tests})
    if asked and _run_tests(copy, ["--all", *tests], most_seconds=0) != _PASSED:
        print("error: these tests fail without any mutant; nothing can be said then:", *tests, file=sys.stderr)
        return 3
    outcomes: list[tuple[str, str]] = []
    for mutant in mutants:
        started = time.monotonic()
        outcome = _try(mutant, copy)
        outcomes.append((mutant.area, outcome))
        why = f": {mutant.equal}" if mutant.equal else ""
        seconds = time.monotonic() - started
        print(f"{outcome:8} {seconds:5.1f} s  {mutant.area}: {mutant.what}{why}", flush=True)
    return _report(outcomes)


def _not_copied(folder: str, names: Sequence[str]) -> set[str]:
    """Names the files that no test needs: compiled modules; in the root hidden files, build output, benchmarks."""
    left_out = {"__pycache__"}
    if Path(folder) == ROOT:
        left_out |= {name for name in names if name.startswith(".") and name != ".importlinter"}
        left_out |= {"benchmarks", "build", "demo-output", "dist", "node_modules"}
    return left_out


def _try(mutant: Mutant, copy: Path) -> str:
    path = copy / mutant.file
    right = path.read_text()
    try:
        wrong = mutant.applied_to(right)
    except (ValueError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return BROKEN
    if mutant.equal:
        return EQUAL
    try:
        _write(path, wrong)
        for tier, options in _TIERS.items():
            code = _run_tests(copy, [*options, *mutant.tests], most_seconds=_MOST_SECONDS)
            if code == _FAILED:
                return tier
            if code not in (_PASSED, _NONE):
                return BROKEN
        return SURVIVED
    finally:
        _write(path, right)


_times = count(1)


def _write(path: Path, text: str) -> None:
    """Each time with another time of change: Python goes by that and the size to know whether it must compile again."""
    path.write_text(text)
    when = next(_times)
    os.utime(path, (when, when))


def _run_tests(copy: Path, tests: Sequence[str], *, most_seconds: int) -> int:
    """Returns pytest's exit code, or 1 if a test hangs."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-o",
        "addopts=--strict-markers",
        "-p",
        "tests.support.tiers",
        "-p",
        "tests.support.time_limit",
        "-o",
        f"time_limit={most_seconds}",
        "-x",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
    ]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    process = subprocess.Popen(
        [*command, *tests],
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: os.nice(19),
    )
    try:
        output, _ = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if HANGS.encode() in output:
        return _FAILED
    if process.returncode not in (_PASSED, _FAILED, _NONE) or (not most_seconds and process.returncode):
        sys.stderr.write(output.decode(errors="replace"))
    return process.returncode


def _report(outcomes: Sequence[tuple[str, str]]) -> int:
    print()
    for area in (*dict.fromkeys(area for area, _ in outcomes), "all"):
        counts = Counter(outcome for of_area, outcome in outcomes if area in (of_area, "all"))
        caught, asked = counts[FIRST] + counts[LONGER], counts.total() - counts[EQUAL]
        share = f"{100 * counts[FIRST] / asked:.0f} %" if asked else "-"
        print(f"{area:12} {caught} of {asked} caught, {counts[FIRST]} by scripts/test alone: {share}")
    return 1 if any(outcome in (SURVIVED, BROKEN) for _, outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
