"""`scripts/compare-with-kafka`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

from tests.support.answers import recorded
from tests.support.answers.asked_broker import KAFKA, PLOG
from tests.support.answers.brokers import ask, kafka_server, plog_server, prepare
from tests.support.answers.comparison import Answers, differences
from tests.support.answers.known_differences import find_known
from tests.support.answers.message_codec import DEFINITIONS
from tests.support.answers.scenarios import SCENARIOS


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/compare-with-kafka", description=__doc__)
    parser.add_argument("scenario", nargs="*", help="a name, or a pattern such as 'fetch-*'; all where none is given")
    parser.add_argument("--list", action="store_true", help="only name the scenarios")
    parser.add_argument("--record", action="store_true", help="write Kafka's answers to tests/golden/answers")
    parser.add_argument("--all", action="store_true", help="print the known differences too, with their reasons")
    arguments = parser.parse_args()
    names = [name for name in SCENARIOS if _is_chosen(name, arguments.scenario)]
    if arguments.list or not names:
        print(*SCENARIOS, sep="\n")
        return 0 if arguments.list else 2
    if arguments.record or not DEFINITIONS.exists():
        recorded.write_definitions()
    with tempfile.TemporaryDirectory(prefix="plog-compare-") as folder:
        return _compare(names, Path(folder), record=arguments.record, show_all=arguments.all)


def _is_chosen(name: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _compare(names: list[str], folder: Path, *, record: bool, show_all: bool) -> int:
    unexplained = 0
    with plog_server(folder) as plog, kafka_server(folder) as kafka, ThreadPoolExecutor(2) as pool:
        sides = ((plog.address, PLOG), (kafka.address, KAFKA))
        list(pool.map(prepare, *zip(*sides, strict=True)))
        for name in names:
            started = time.monotonic()
            ours, theirs = pool.map(lambda side, name=name: ask(name, *side), sides)
            if record:
                recorded.write_answers(name, theirs)
            unexplained += _report(name, ours, theirs, time.monotonic() - started, show_all=show_all)
    return 1 if unexplained else 0


def _report(name: str, ours: Answers, theirs: Answers, seconds: float, *, show_all: bool) -> int:
    """The number of differences without a reason."""
    explained = [(difference, find_known(name, difference)) for difference in differences(ours, theirs)]
    unexplained = [difference for difference, known in explained if known is None]
    counts = f"{len(theirs)} answers, {len(explained) - len(unexplained)} known differences, {len(unexplained)} others"
    print(f"{name}: {counts}, {seconds:.1f} s")
    for difference, known in explained:
        if known is None:
            print(f"  ! {difference}")
        elif show_all:
            print(f"    {difference}\n      {known.reason.document}: {known.reason.text}")
    sys.stdout.flush()
    return len(unexplained)


if __name__ == "__main__":
    sys.exit(main())
