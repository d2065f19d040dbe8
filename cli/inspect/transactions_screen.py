"""The transactions: open ones on partitions, those that hold consumers up, and the transactional ids."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from cli.inspect.line_view import BAD, Column, Row, TableView, number_text
from cli.inspect.screen import LookingScreen
from cli.inspect.text_view import Detail
from core.common.clock import SystemClock
from core.common.time_text import duration_text, time_text
from core.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from core.client.write.transaction_admin import OpenTransaction
    from core.view.groups.known_transactions import KnownId, KnownTransactions, TransactionListing


def _marked(row: Row) -> Style | None:
    if row["is_hanging"]:
        return BAD
    return Style(color="yellow") if row["holds_readers"] else None


class TransactionsScreen(LookingScreen):
    """Lists the open transactions above, the transactional ids below; Enter goes to a transaction's first record."""

    HELP = """
Above: the transactions that are open on partitions. The first open transaction of a partition holds readers of
committed records: they get nothing after its first record until it ends. A transaction hangs if no coordinator knows
it, so that none will end it.

Below: the transactional ids that the coordinators know, and where each stands. Tab goes from one list to the other.

plog asks the server, also the one that owns the directory; without a server it reads the files.
"""
    KEYS = (
        ("Enter", "the first record of the transaction"),
        ("Tab", "the other list"),
        ("s, S", "sort by the next column, or the other way round"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "other", "Other list", priority=True)]
    DEFAULT_CSS = """
    TransactionsScreen #open { height: 1fr; }
    TransactionsScreen #ids { height: 1fr; }
    TransactionsScreen .heading { height: 1; padding: 0 1; color: $text-muted; }
    """

    def __init__(self) -> None:
        super().__init__("transactions")

    def body(self) -> Iterable[Widget]:
        open_columns = (
            Column("where", "partition", style=_marked),
            Column("start_offset", "first offset", is_number=True, text=number_text),
            Column("mark", "", style=_marked),
            Column("open_ms", "open for", is_number=True, importance=1, text=duration_text),
            Column("transactional_id", "transactional id", importance=2),
            Column("producer_id", "producer", is_number=True, importance=3),
            Column("producer_epoch", "epoch", is_number=True, importance=5),
            Column("state", importance=4),
            Column("since", importance=6, text=time_text),
        )
        id_columns = (
            Column("transactional_id", "transactional id"),
            Column("state"),
            Column("producer_id", "producer", is_number=True, importance=1),
            Column("producer_epoch", "epoch", is_number=True, importance=4),
            Column("started_ms", "started", importance=3, text=time_text),
            Column("partitions", importance=2),
            Column("problem", importance=5),
        )
        self.open = TableView(open_columns, id="open", key=lambda row: (row["where"], row["producer_id"]))
        self.ids = TableView(id_columns, id="ids", key=lambda row: row["transactional_id"])
        self.ids.shows_cursor = False
        yield Static("Open on partitions", classes="heading", id="open-heading")
        yield self.open
        yield Static("Transactional ids", classes="heading", id="ids-heading")
        yield self.ids
        yield Detail(id="transaction-detail")

    def title_text(self) -> str:
        return f"transactions  {self.inspected.name}"

    def command_line(self) -> str:
        if not self.ids.has_focus:
            return f"plog transaction find-hanging --all{self.inspected.root_option}"
        row = self.ids.row
        if row is None:
            return f"plog transaction list{self.inspected.root_option}"
        return f"plog transaction describe {shlex.quote(row['transactional_id'])}{self.inspected.root_option}"

    # --- looking

    @cached_property
    def transactions(self) -> KnownTransactions:
        """The model; owned by the screen's thread."""
        from core.view.groups.known_transactions import KnownTransactions

        return self.models.enter_context(closing(KnownTransactions(self.inspected)))

    def steps(self) -> Iterator[tuple[TransactionListing, str]]:
        for listing in self.transactions.steps():
            yield listing, self.transactions.note

    def take(self, found: tuple[TransactionListing, str]) -> None:
        listing, note = found
        now_ms = SystemClock().now_ms()
        self.open.show([_open_row(one, now_ms) for one in listing.open_transactions])
        self.ids.show([_id_row(one) for one in listing.ids])
        hanging = sum(one.is_hanging for one in listing.open_transactions)
        told = f"{len(listing.open_transactions)}, of which {hanging} hang" if listing.open_transactions else "none"
        self.query_one("#open-heading", Static).update(f"Open on partitions: {told}")
        self.query_one("#ids-heading", Static).update(f"Transactional ids: {len(listing.ids)}")
        self.tell_of(listing, note)
        if listing.is_whole:
            self.open.say_when_empty("no transaction is open")
            self.ids.say_when_empty("no transactional id is known")

    # --- the cursor

    def on_descendant_focus(self) -> None:
        for view in (self.open, self.ids):
            view.shows_cursor = view.has_focus
            view.refresh()
        self.on_line_view_moved()

    def on_line_view_moved(self) -> None:
        row = self.open.row
        self.partition = None if row is None else row["partition"]
        lines = [] if row is None or self.ids.has_focus else self._details(row)
        self.query_one(Detail).show("\n".join(lines))

    def _details(self, row: Row) -> list[str]:
        last = "" if row["last_timestamp"] < 0 else f"; it wrote last at {time_text(row['last_timestamp'])}"
        since = "not known when" if row["since"] is None else time_text(row["since"])
        held = row["high_watermark"] - row["last_stable_offset"]
        lines = [f"{row['where']}: open since {since}{last}"]
        if row["holds_readers"]:
            until = f"{row['last_stable_offset']:,} of {row['high_watermark']:,}"
            lines.append(f"readers of committed records end at offset {until}: {held:,} offsets wait")
        lines.append(f"to end it: {self._how_to_end(row)}")
        return lines

    def _how_to_end(self, row: Row) -> str:
        option = self.inspected.root_option
        if row["transactional_id"] is not None and not row["is_hanging"]:
            return f"plog transaction abort {shlex.quote(row['transactional_id'])}{option}"
        partition: TopicPartition = row["partition"]
        place = f"--topic {shlex.quote(partition.topic)} --partition {partition.partition}"
        return f"plog transaction abort {place} --start-offset {row['start_offset']}{option}"

    def chosen(self) -> None:
        row = self._row_of_id() if self.ids.has_focus else self.open.row
        if row is not None:
            self.inspect_app.open_records(row["partition"], row["start_offset"])
        elif self.ids.has_focus:
            self.tell("nothing is open of this transactional id")

    def _row_of_id(self) -> Row | None:
        chosen = self.ids.row
        name = None if chosen is None else chosen["transactional_id"]
        return next((row for row in self.open.rows if name is not None and row["transactional_id"] == name), None)

    def action_other(self) -> None:
        (self.open if self.ids.has_focus else self.ids).focus()


def _open_row(one: OpenTransaction, now_ms: int) -> Row:
    since = one.since_ms if one.since_ms >= 0 else None
    marks = [
        word for word, holds in (("hangs", one.is_hanging), ("holds readers", one.pins_last_stable_offset)) if holds
    ]
    return {
        **asdict(one),
        "where": str(one.partition),
        "mark": ", ".join(marks),
        "is_hanging": one.is_hanging,
        "holds_readers": one.pins_last_stable_offset,
        "open_ms": None if since is None else max(now_ms - since, 0),
        "transactional_id": None if one.known is None else one.known.transactional_id,
        "state": None if one.known is None else one.known.state,
        "since": since,
    }


def _id_row(one: KnownId) -> Row:
    row = asdict(one.found)
    partitions = ", ".join(sorted(map(str, row.get("partitions", ()))))
    since = {"started_ms": row["started_ms"] if row.get("started_ms", -1) >= 0 else None}
    return {**row, **since, "partitions": partitions, "problem": one.problem}
