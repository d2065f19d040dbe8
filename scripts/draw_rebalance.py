"""Makes docs/rebalance-2011.svg: who owns which partition while consumers join, leave and die, in a real run.

.venv/bin/python scripts/draw_rebalance.py

It needs Java and Maven: the run is one of Kafka 3.9 with ZooKeeper. Owners are read where the consumers write them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kazoo.client import KazooClient  # noqa: E402
from kazoo.exceptions import NoNodeError  # noqa: E402

from tests.support.kafka39 import Kafka39Cluster  # noqa: E402
from tests.support.old_consumer import PlogConsumer  # noqa: E402

PARTITIONS = 6
COLOURS = {"A": "#3b7dd8", "B": "#e08a1e", "C": "#3a9d5d"}
LEFT, TOP, ROW, PIXELS_PER_SECOND = 96, 78, 26, 38
_LOOK_SECONDS = 0.02
_STAY_SECONDS = 2.5
"""How long a group is left as it is before the next thing happens to it."""


class Look(NamedTuple):
    """Who owned each partition at a moment; those without an owner are missing."""

    seconds: float
    owners: dict[int, str]


class Run:
    """A group that is watched; time counts from the first event."""

    def __init__(self, registries: KazooClient) -> None:
        self._registries = registries
        self._started_s = time.monotonic()
        self._names: dict[str, str] = {}
        self.looks: list[Look] = []
        self.events: list[tuple[float, str]] = []

    def note(self, event: str) -> None:
        self.events.append((time.monotonic() - self._started_s, event))

    def watch(self, until: Callable[[dict[int, str]], bool], *, name: str | None = None) -> None:
        """Looks again and again until the owners are so, and a while longer. `name` is given to the newest consumer."""
        end_s: float | None = None
        while end_s is None or time.monotonic() < end_s:
            owners = self._owners(name)
            self.looks.append(Look(time.monotonic() - self._started_s, owners))
            if end_s is None and len(owners) == PARTITIONS and until(owners):
                end_s = time.monotonic() + _STAY_SECONDS
            time.sleep(_LOOK_SECONDS)

    def _owners(self, name: str | None) -> dict[int, str]:
        found = {}
        for number in range(PARTITIONS):
            try:
                data: bytes = self._registries.get(f"/consumers/g/owners/t/{number}")[0]
            except NoNodeError:
                continue
            consumer = data.decode().rpartition("-")[0]
            if name is not None:
                self._names.setdefault(consumer, name)
            found[number] = self._names[consumer]
        return found


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary, Kafka39Cluster(Path(temporary)) as cluster:
        topic = ["topic", "create", "t", "--partitions", str(PARTITIONS), "--bootstrap-server", cluster.address]
        subprocess.run([ROOT / ".venv" / "bin" / "plog", *topic], check=True, capture_output=True)
        registries = KazooClient(hosts=cluster.connect)
        registries.start()
        try:
            run = play(Path(temporary), cluster.connect, registries)
        finally:
            registries.stop()
    (ROOT / "docs" / "rebalance-2011.svg").write_text(drawn(run))


def play(folder: Path, zookeeper: str, registries: KazooClient) -> Run:
    """Three consumers join, one after the other; the first one leaves, and the second one dies."""
    members = {name: PlogConsumer(folder / name, zookeeper, "g", "t") for name in COLOURS}
    run = Run(registries)
    with ExitStack() as stack:
        for count, (name, member) in enumerate(members.items(), start=1):
            run.note(f"{name} starts")
            stack.enter_context(member)
            run.watch(lambda owners, count=count: len(set(owners.values())) == count, name=name)
        run.note("A is stopped")
        members["A"].stop()
        run.watch(lambda owners: set(owners.values()) == {"B", "C"})
        run.note("B is killed")
        members["B"].kill()
        run.watch(lambda owners: set(owners.values()) == {"C"})
    return run


def drawn(run: Run) -> str:
    """Draws a row for each partition, and a bar for as long as it has one owner."""
    end_s = run.looks[-1].seconds
    width, bottom = LEFT + round(end_s * PIXELS_PER_SECOND) + 24, TOP + PARTITIONS * ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 64}">',
        '<g font-family="sans-serif" font-size="13">',
        "<title>Which consumer owns which partition, over time</title>",
        f'<rect width="{width}" height="{bottom + 64}" fill="#ffffff"/>',
    ]
    for seconds, event in run.events:
        parts.append(f'<line x1="{at(seconds)}" y1="{TOP - 8}" x2="{at(seconds)}" y2="{bottom}" stroke="#555555"/>')
        parts.append(text(at(seconds) + 4, TOP - 14, event))
    for number in range(PARTITIONS):
        top = TOP + number * ROW
        parts.append(text(8, top + ROW - 9, f"partition {number}"))
        for start, end, owner in bars(run.looks, number):
            size = f'width="{at(end) - at(start):.1f}" height="{ROW - 6}" fill="{COLOURS[owner]}"'
            parts.append(f'<rect x="{at(start):.1f}" y="{top}" {size}/>')
    parts += [text(at(second), bottom + 18, f"{second} s") for second in range(0, int(end_s) + 1, 2)]
    for place, (name, colour) in enumerate(COLOURS.items()):
        x = LEFT + place * 110
        parts.append(f'<rect x="{x}" y="{bottom + 34}" width="16" height="16" fill="{colour}"/>')
        parts.append(text(x + 22, bottom + 47, f"consumer {name}"))
    parts.append(text(LEFT + 340, bottom + 47, "white: nobody reads it"))
    parts.append(text(8, 22, "Six partitions of a topic, and the consumers of a group that divide them by themselves"))
    return "\n".join([*parts, "</g>", "</svg>", ""])


def at(seconds: float) -> float:
    return round(LEFT + seconds * PIXELS_PER_SECOND, 1)


def text(x: float, y: float, words: str) -> str:
    return f'<text x="{x}" y="{y}" fill="#222222">{words}</text>'


def bars(looks: list[Look], number: int) -> list[tuple[float, float, str]]:
    """Gives (start, end, owner) of each time in which one consumer owned the partition."""
    found: list[tuple[float, float, str]] = []
    start_s, owner = 0.0, None
    for look in [*looks, Look(looks[-1].seconds, {})]:
        now = look.owners.get(number)
        if now != owner:
            if owner is not None:
                found.append((start_s, look.seconds, owner))
            start_s, owner = look.seconds, now
    return found


if __name__ == "__main__":
    main()
