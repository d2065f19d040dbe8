"""`scripts/compare-with-kafka`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from itertools import count
from pathlib import Path

from tests.support.answers import recorded
from tests.support.answers.asked_broker import KAFKA, PLOG
from tests.support.answers.brokers import ask, kafka_server, plog_server, prepare
from tests.support.answers.comparison import Answers, differences
from tests.support.answers.known_differences import AT_RANDOM, KNOWN, Known, find_known
from tests.support.answers.message_codec import DEFINITIONS
from tests.support.answers.scenarios import SCENARIOS
from tests.support.answers.scenarios.random_requests import THEMES, live
from tests.support.answers.scenarios.registry import Scenario


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/compare-with-kafka", description=__doc__)
    parser.add_argument("scenario", nargs="*", help="a name, or a pattern such as 'fetch-*'; all where none is given")
    parser.add_argument("--list", action="store_true", help="only name the scenarios")
    parser.add_argument("--record", action="store_true", help="write Kafka's answers to tests/golden/answers")
    parser.add_argument("--all", action="store_true", help="print the known differences too, with their reasons")
    parser.add_argument("--random", type=int, metavar="N", help="as many requests at random in place of scenarios")
    parser.add_argument("--seed", type=int, default=0, help="of these requests")
    arguments = parser.parse_args()
    names = [name for name in SCENARIOS if _is_chosen(name, arguments.scenario)]
    if arguments.list or not names:
        print(*SCENARIOS, sep="\n")
        return 0 if arguments.list else 2
    if arguments.record or not DEFINITIONS.exists():
        recorded.write_definitions()
    with tempfile.TemporaryDirectory(prefix="plog-compare-") as folder:
        if arguments.random:
            return _compare_at_random(arguments.random, arguments.seed, Path(folder), show_all=arguments.all)
        return _compare(names, Path(folder), record=arguments.record, show_all=arguments.all)


def _is_chosen(name: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _compare(names: list[str], folder: Path, *, record: bool, show_all: bool) -> int:
    unexplained = 0
    with _both(folder) as ask_both:
        for name in names:
            started = time.monotonic()
            ours, theirs = ask_both(SCENARIOS[name])
            if record:
                recorded.write_answers(name, theirs)
            unexplained += _report(name, name, ours, theirs, time.monotonic() - started, show_all=show_all)
    return 1 if unexplained else 0


def _compare_at_random(requests: int, seed: int, folder: Path, *, show_all: bool) -> int:
    """Says at the end how often it met each known difference; an entry that explains nothing may hide a fault."""
    unexplained = asked = 0
    known = Counter({entry: 0 for entry in KNOWN if AT_RANDOM in entry.scenarios})
    with _both(folder) as ask_both:
        for number in count():
            started = time.monotonic()
            ours, theirs = ask_both(partial(live, seed=seed, number=number))
            name = f"life {number}, {list(THEMES)[number % len(THEMES)]}"
            seconds = time.monotonic() - started
            unexplained += _report(name, AT_RANDOM, ours, theirs, seconds, show_all=show_all, met=known)
            asked += len(theirs)
            if asked >= requests:
                break
    print(f"\n{asked} requests, {known.total()} known differences, {unexplained} others")
    for entry, times in known.most_common():
        print(f"{times:5}  {entry.reason.document}: {entry.reason.text} ({entry.api} {entry.path})")
    return 1 if unexplained else 0


@contextmanager
def _both(folder: Path) -> Iterator[Callable[[Scenario], list[Answers]]]:
    """Asks plog and Kafka at the same time; their answers, in this order."""
    with plog_server(folder) as plog, kafka_server(folder) as kafka, ThreadPoolExecutor(2) as pool:
        sides = ((plog.address, PLOG), (kafka.address, KAFKA))
        list(pool.map(prepare, *zip(*sides, strict=True)))
        yield lambda scenario: list(pool.map(lambda side: ask(scenario, *side), sides))


def _report(
    title: str,
    name: str,
    ours: Answers,
    theirs: Answers,
    seconds: float,
    *,
    show_all: bool,
    met: Counter[Known] | None = None,
) -> int:
    """The number of differences without a reason; counts the others in `met`."""
    explained = [(difference, find_known(name, difference)) for difference in differences(ours, theirs)]
    if met is not None:
        met.update(known for _, known in explained if known)
    unexplained = [difference for difference, known in explained if known is None]
    counts = f"{len(theirs)} answers, {len(explained) - len(unexplained)} known differences, {len(unexplained)} others"
    print(f"{title}: {counts}, {seconds:.1f} s")
    for difference, known in explained:
        if known is None:
            print(f"  ! {difference}")
        elif show_all:
            print(f"    {difference}\n      {known.reason.document}: {known.reason.text}")
    sys.stdout.flush()
    return len(unexplained)


if __name__ == "__main__":
    sys.exit(main())
