"""Shared by `plog cluster reassign` and `plog cluster drain`: a plan is shown, carried out, and watched to its end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cli.data_location import typed_place
from cli.output import OutputFormat, Row, write_rows
from cli.progress import size_text
from cli.terminal import cut, find_width, say, say_failures
from core.cluster.assignment.planned_move import PlannedMove, plan_json
from core.cluster.description.cluster_health import names_text
from core.cluster.description.replicated_partition import ReplicatedPartition
from core.common.command_option import option
from core.common.errors import AccessError, UsageError
from core.common.time_text import duration_text

if TYPE_CHECKING:
    from core.client.cluster_admin.reassigner import Reassigner
    from core.client.cluster_admin.reassignment_watch import MovedSoFar
    from core.client.net.kafka_client import KafkaClient

THROTTLE = option(
    "The most bytes per second that each broker copies, as leader and as follower: 50MB/s.", metavar="RATE"
)
TO = option("The ids of the brokers to move to. Default: all live brokers.", metavar="BROKER[,..]")

_UNITS = {"T": 1 << 40, "G": 1 << 30, "M": 1 << 20, "K": 1 << 10, "": 1}
_RATE_LIMIT = 1 << 62
_EVERY_SECONDS_IN_A_PIPE = 10.0
_COLUMNS = ["partition", "from", "to", "copies_to", "moved_bytes"]
_PROGRESS_COLUMNS = ["partition", "from", "to", "copies_to", "copied_bytes", "left_bytes"]


def parse_rate(text: str | None) -> int | None:
    """Reads the bytes per second of `50MB/s`, `50M` or `52428800`; raises UsageError for anything else."""
    if text is None:
        return None
    number = text.strip().upper().removesuffix("/S").strip().removesuffix("B")
    unit = next(unit for unit in _UNITS if number.endswith(unit))
    number = number.removesuffix(unit).strip()
    try:
        rate = float(number) * _UNITS[unit]
    except ValueError:
        rate = 0.0
    if rate >= _RATE_LIMIT:
        raise UsageError(f"--throttle {text}: too large, expected bytes per second below 4 EB")
    if not rate >= 1:  # nor if it is no number
        raise UsageError(f"--throttle {text}: expected bytes per second", hint="--throttle 50MB/s")
    return int(rate)


def parse_topics(text: str | None) -> list[str] | None:
    """Reads `flights,other`; raises UsageError if a name is missing."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(f"--topics {text}: expected the names of topics", hint="--topics flights,rides")
    return names


def parse_brokers(text: str | None) -> list[int] | None:
    """Reads `1,2,3`; raises UsageError for anything else, and for a broker that is named twice."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(map(_is_id, words)):
        raise UsageError(f"--to {text}: expected the ids of brokers", hint="--to 1,2,3")
    brokers = [int(word) for word in words]
    if len(set(brokers)) < len(brokers):
        raise UsageError(f"--to {text}: a broker is named twice")
    return brokers


def parse_broker(text: str) -> int:
    """Reads the id of one broker; raises UsageError for anything else."""
    if not _is_id(text):
        raise UsageError(
            f"{text!r} is no id of a broker, expected a number", hint=f"plog cluster brokers{typed_place()}"
        )
    return int(text)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 11 and int(text) < 1 << 31


def find_racks(client: KafkaClient, wanted: Sequence[int] | None) -> dict[int, str | None]:
    """Returns the racks of these brokers, or of all live ones. Raises UsageError for a broker that is away."""
    from core.client.admin.cluster_status import describe_cluster

    brokers = {broker.broker_id: broker for broker in describe_cluster(client).brokers}
    living = {b.broker_id: b.rack for b in brokers.values() if not b.is_fenced and b.failure is None}
    for broker_id in wanted or ():
        if broker_id in living:
            continue
        broker = brokers.get(broker_id)
        why = (
            "is not there" if broker is None else "is fenced: it is stopped" if broker.is_fenced else "can't be reached"
        )
        raise UsageError(
            f"broker {broker_id} {why}; the live brokers are {', '.join(map(str, sorted(living)))}",
            hint=f"plog cluster brokers{typed_place()}",
        )
    return {broker_id: rack for broker_id, rack in living.items() if wanted is None or broker_id in wanted}


def make_reassigner(client: KafkaClient, progress: MoveProgress) -> Reassigner:
    from core.client.admin.admin import Admin
    from core.client.cluster_admin.reassigner import Reassigner
    from core.client.cluster_admin.replication_throttle import ReplicationThrottle

    client.refresh([])  # which tells the id of the cluster
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    note = base / "plog" / f"throttle-{client.cluster_id or 'of-a-cluster-without-an-id'}.json"
    return Reassigner(client, ReplicationThrottle(Admin(client), note, progress.say), progress.say)


# --- a plan


def write_moves(moves: Sequence[PlannedMove], output: OutputFormat, *, as_plan: bool = False) -> None:
    """Prints a row for each partition; `as_plan`: JSON is the input of kafka-reassign-partitions.sh."""
    if as_plan and output is OutputFormat.json:
        print(plan_json(moves))
        return
    if output is OutputFormat.table and not moves:
        return
    write_rows([_row(move) for move in moves], _COLUMNS, output, drops=["copies_to", "moved_bytes"])


def _row(move: PlannedMove) -> Row:
    return {
        "partition": str(move.partition),
        "from": list(move.replicas),
        "to": list(move.target),
        "copies_to": list(move.adding),
        "moved_bytes": move.moved_bytes if move.size_bytes is not None else None,
    }


def say_total(moves: Sequence[PlannedMove]) -> None:
    copies = sum(len(move.adding) for move in moves)
    brokers: dict[int, int] = {}
    for move in moves:
        for broker in move.adding:
            brokers[broker] = brokers.get(broker, 0) + (move.size_bytes or 0)
    to = ", ".join(f"{size_text(size)} to broker {broker}" for broker, size in sorted(brokers.items()))
    changed = f"{len(moves):,} partition{'s' if len(moves) != 1 else ''} to change"
    say(f"{changed}, {copies:,} new replica{'s' if copies != 1 else ''}" + (f": {to}" if to else ""))
    _say_unknown(sum(move.size_bytes is None for move in moves))


def _say_unknown(partitions: int) -> None:
    if partitions:
        say(f"note: the sizes of {partitions:,} of the partitions are not known")


# --- ongoing moves


def write_progress(moves: Sequence[PlannedMove], state: MovedSoFar, output: OutputFormat) -> None:
    """Prints a row for each moving partition: its copied bytes, and the bytes left. Other formats have their sum, too,
    under its name in a plan.
    """
    if output is OutputFormat.table and not moves:
        return
    rows = [_progress_row(move, state) for move in moves]
    columns = _PROGRESS_COLUMNS if output is OutputFormat.table else [*_COLUMNS, *_PROGRESS_COLUMNS[-2:]]
    write_rows(rows, columns, output, drops=["from", "copies_to", "copied_bytes"])


def _progress_row(move: PlannedMove, state: MovedSoFar) -> Row:
    copies = state.copies.get(move.partition)
    if copies is None:  # it is done meanwhile, or nobody tells sizes
        is_done = move.partition not in state.left and move.size_bytes is not None
        done, left = (move.moved_bytes, 0) if is_done else (None, None)
        return {**_row(move), "copied_bytes": done, "left_bytes": left}
    return {**_row(move), "moved_bytes": sum(copies), "copied_bytes": copies.copied, "left_bytes": copies.left}


def say_progress(moves: Sequence[PlannedMove], state: MovedSoFar) -> None:
    copies = sum(len(move.adding) for move in moves)
    moved = f"{len(moves):,} partition{'s are' if len(moves) != 1 else ' is'} being moved"
    text = f"{moved}, {copies:,} new replica{'s' if copies != 1 else ''}"
    if state.bytes_left is not None:
        whole = size_text(state.moved_bytes + state.bytes_left)
        text += f": {size_text(state.moved_bytes)} of {whole} copied, {size_text(state.bytes_left)} left"
    say(text)
    _say_unknown(state.of_unknown_size)


def warn_of_leaderless(planned: Iterable[ReplicatedPartition]) -> None:
    """Warns of partitions that can't move because they have no leader."""
    leaderless = [p.partition for p in planned if not p.has_leader]
    if leaderless:
        have = "has" if len(leaderless) == 1 else "have"
        say(f"warning: {names_text(leaderless)} {have} no leader, and nothing can be copied until there is one")


def carry_out(
    client: KafkaClient, moves: Sequence[PlannedMove], throttle: int | None, output: OutputFormat, *, dry_run: bool
) -> int:
    """Shows the plan, carries it out unless it is a dry run, and watches it. Returns the exit code."""
    if not moves:
        say("there is nothing to move: all replicas are where they should be")
        write_moves(moves, output, as_plan=dry_run)
        return 0
    progress = MoveProgress()
    reassigner = make_reassigner(client, progress)
    say_total(moves)
    write_moves(moves, output, as_plan=dry_run)
    if dry_run:
        say("would do this without --dry-run; nothing was changed")
        return 0
    with _said_if_stopped(progress, has_throttle=throttle is not None):
        refused = reassigner.start(moves, throttle)
        code = say_failures(list(refused.values()))
        begun = [move for move in moves if move.partition not in refused]
        return max(code, watch(client, reassigner, begun, progress))


def watch(client: KafkaClient, reassigner: Reassigner, moves: Sequence[PlannedMove], progress: MoveProgress) -> int:
    """Shows the progress of the moves until they are done. Returns the exit code: 1 if some partitions did not
    arrive.
    """
    if not moves:
        reassigner.remove_throttle()
        return 0
    with _said_if_stopped(progress, has_throttle=reassigner.has_throttle):
        for state in reassigner.watch(moves):
            progress.show(state)
    progress.done()
    missed = reassigner.find_missed(moves)
    for move in missed:
        target = ",".join(map(str, move.target))
        say(f"error: {move.partition} is not on {target}: its move was cancelled, or changed by somebody else")
    say(f"{len(moves) - len(missed):,} of {len(moves):,} partitions are where they should be")
    _hint_at_leaders(client, moves)
    return 1 if missed else 0


def _hint_at_leaders(client: KafkaClient, moves: Sequence[PlannedMove]) -> None:
    """Reports partitions that are not led by their preferred leader: a reassignment elects only if it must."""
    from core.client.cluster_admin.cluster_partitions import read_partitions

    moved = {move.partition for move in moves}
    placed = read_partitions(client, None, [])
    topics = sorted({p.partition.topic for p in placed if p.partition in moved and not p.has_preferred_leader})
    if topics:
        say(f"hint: plog cluster elect --preferred {' '.join(topics)}{typed_place()} has the first replicas lead")


@contextmanager
def _said_if_stopped(progress: MoveProgress, *, has_throttle: bool) -> Iterator[None]:
    """Explains the state of the moves if the watching ends before them: by Ctrl-C, or because no broker answers."""
    try:
        yield
    except (KeyboardInterrupt, AccessError):
        if not progress.is_stopped:
            progress.is_stopped = True
            progress.done()
            then = ", and then removes the throttle" if has_throttle else ""
            say("the cluster goes on moving what has begun")
            say(f"hint: plog cluster reassign --status{typed_place()} watches it{then}; --cancel ends it")
        raise


class MoveProgress:
    """Shows on stderr how far replicas have moved: a line that changes on a terminal; elsewhere a line every 10 s.
    Owned by one task.
    """

    def __init__(self) -> None:
        self._width = find_width(sys.stderr)
        self._started_s = time.monotonic()
        self._shown_s = self._started_s
        self._moved_before: int | None = None
        self.is_stopped = False
        """Whether the user was told after Ctrl-C that the moves go on."""

    def say(self, text: str) -> None:
        """Shows a message beside the line."""
        self.done()
        say(text)

    def show(self, state: MovedSoFar) -> None:
        now_s = time.monotonic()
        if self._moved_before is None:
            self._moved_before = state.moved_bytes  # by others, or before we looked
        if self._width is not None:
            sys.stderr.write("\r\x1b[K" + self._text(state, now_s, self._width - 1))
            sys.stderr.flush()
        elif now_s - self._shown_s >= _EVERY_SECONDS_IN_A_PIPE:
            self._shown_s = now_s
            print(self._text(state, now_s), file=sys.stderr, flush=True)

    def _text(self, state: MovedSoFar, now_s: float, width: int | None = None) -> str:
        """Shortens the text to the room there is; the rest and its time come first."""
        count = f"{state.done:,} of {state.partitions:,}"
        sizes, rate, left = self._of_bytes(state, now_s)
        unknown = f"{state.of_unknown_size:,} of unknown size" if sizes and state.of_unknown_size else ""
        texts = [
            ", ".join(filter(None, parts))
            for parts in (
                (f"{count} partitions are moved", sizes, unknown, rate, left),
                (f"{count} moved", sizes, rate, left),
                (sizes or f"{count} moved", rate, left),
                (sizes or f"{count} moved", left),
            )
        ]
        if width is None:
            return texts[0]
        return next((text for text in texts if len(text) <= width), cut(texts[-1], width))

    def _of_bytes(self, state: MovedSoFar, now_s: float) -> tuple[str, str, str]:
        """Returns bytes moved, rate and time left; unknown ones are empty."""
        if state.bytes_left is None:
            return "", "", ""
        sizes = f"{size_text(state.moved_bytes)} of {size_text(state.moved_bytes + state.bytes_left)}"
        per_s = (state.moved_bytes - (self._moved_before or 0)) / max(now_s - self._started_s, 1e-9)
        if per_s < 1:
            return sizes, "", ""
        time_left = f"{duration_text(round(state.bytes_left / per_s) * 1000)} left" if state.bytes_left else ""
        return sizes, f"{size_text(per_s)}/s", time_left

    def done(self) -> None:
        """Clears the line."""
        if self._width is not None:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
