"""`plog transaction list | describe | find-hanging | abort`."""

from __future__ import annotations

import time
from dataclasses import asdict

import typer

from cli.data_location import Place, ReadPlace, WritePlace, typed_place
from cli.options import DRY_RUN
from cli.output import OUTPUT, Listing, OutputFormat, Row
from cli.plog_command import command, new_app
from cli.terminal import say
from core.client.write.transaction_admin import OpenTransaction, TransactionAdmin
from core.common.command_option import argument, flag, option, options
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, UsageError
from core.common.time_text import time_text

app = new_app(
    "List and describe transactions, find those that hang, and abort them.", "plog transaction find-hanging --all"
)

TOPICS = options("Only this topic.", "--topic", metavar="TOPIC")


@command(app, "plog transaction list --state ongoing", name="list")
def list_(
    states: list[str] | None = options("Only transactional ids in this state.", "--state", metavar="STATE"),
    producer_ids: list[int] | None = options("Only this producer's.", "--producer-id", metavar="N"),
    longer_than: float | None = option("Only transactions that began longer ago than this.", metavar="SECONDS", min=0),
    pattern: str | None = option(
        "Only transactional ids that this regular expression matches as a whole.", metavar="REGEX"
    ),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """List the transactional ids, and the state of each."""
    with place.session().open_client(is_read_only=True, rests_on=_are_transactions, opens_late=True) as client:
        found = TransactionAdmin(client).list_transactions(
            states=[_state(state) for state in states or ()],
            producer_ids=producer_ids or (),
            longer_than_ms=-1 if longer_than is None else round(longer_than * 1000),
            pattern=pattern,
        )
        listing = Listing("transactional_id state producer_id coordinator", drops="coordinator producer_id")
        listing.write(list(map(asdict, found)), output)


def _are_transactions(topic: str) -> bool:
    return topic == "__transaction_state"


def _state(text: str) -> str:
    """Returns the state in the brokers' spelling, or the text itself if no state has that name."""
    from core.coordinator.transaction_state import TransactionState

    plain = text.replace("-", "").replace("_", "").lower()
    return next((state.text for state in TransactionState if state.text.lower() == plain), text)


@command(app, "plog transaction describe copier-1 --output json")
def describe(
    transactional_ids: list[str] = argument("Which ids.", metavar="TRANSACTIONAL_ID..."),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Show who writes under a transactional id, since when, and to which partitions."""
    rows: list[Row] = []
    with place.session().open_client(is_read_only=True, rests_on=_are_transactions, opens_late=True) as client:
        for transactional_id in transactional_ids:
            found = TransactionAdmin(client).describe(transactional_id)
            rows.append(
                {
                    **asdict(found),
                    "started": _time(found.started_ms),
                    "open_seconds": _seconds_since(found.started_ms) if found.state == "Ongoing" else None,
                    "partitions": sorted(map(str, found.partitions)),
                }
            )
        _DESCRIBED.write(rows, output)


_DESCRIBED = Listing(
    "transactional_id state producer_id producer_epoch timeout_ms started open_seconds partitions coordinator",
    drops="coordinator producer_epoch timeout_ms started producer_id",
)


@command(app, "plog transaction find-hanging --all --data-dir sample-data/open-transaction", name="find-hanging")
def find_hanging(
    topics: list[str] | None = TOPICS,
    all_: bool = flag("List all open transactions, also those that their coordinator will end."),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Find hanging transactions: they are open on a partition, but no coordinator knows them.

    Nobody will end such a transaction, and consumers that read only committed records wait before it. The command says
    how to end each. The exit code is 1 if there is one.
    """

    def is_looked_at(topic: str) -> bool:
        return not topics or topic in topics or _are_transactions(topic)

    with place.session().open_client(is_read_only=True, rests_on=is_looked_at, opens_late=True) as client:
        found = TransactionAdmin(client).open_transactions(topics or ())
        hanging = [transaction for transaction in found if transaction.is_hanging]
        shown = found if all_ else hanging
        _OPEN.write(list(map(_open_row, shown)), output)
        for hint in dict.fromkeys(map(_how_to_end, shown)):
            say(f"hint: {hint}")
        if not hanging and not all_ and found:
            say(f"none hangs; {len(found)} open: --all shows them")
    if hanging:
        raise typer.Exit(1)


def _how_to_end(transaction: OpenTransaction) -> str:
    if transaction.known is not None and not transaction.is_hanging:
        name = transaction.known.transactional_id
        return f"{name} does not hang; to abort it all the same: plog transaction abort {name}{typed_place()}"
    partition = transaction.partition
    return (
        f"plog transaction abort --topic {partition.topic} --partition {partition.partition} "
        f"--start-offset {transaction.start_offset}{typed_place()}"
    )


_OPEN = Listing(
    "topic partition start_offset since open_seconds last_write producer_id producer_epoch transactional_id "
    "coordinator_state is_hanging pins_last_stable_offset last_stable_offset high_watermark",
    drops="high_watermark last_stable_offset pins_last_stable_offset producer_epoch last_write coordinator_state since "
    "transactional_id producer_id",
)


def _open_row(transaction: OpenTransaction) -> Row:
    known = transaction.known
    return {
        **asdict(transaction),
        **transaction.partition._asdict(),
        "since": _time(transaction.since_ms),
        "open_seconds": _seconds_since(transaction.since_ms),
        "last_write": _time(transaction.last_timestamp),
        "transactional_id": None if known is None else known.transactional_id,
        "coordinator_state": None if known is None else known.state,
        "is_hanging": transaction.is_hanging,
        "pins_last_stable_offset": transaction.pins_last_stable_offset,
    }


@command(app, "plog transaction abort --topic orders --partition 3 --start-offset 81721")
def abort(
    transactional_id: str | None = argument(
        "Abort the open transaction of this id, and fence its producer.", default=None, metavar="[TRANSACTIONAL_ID]"
    ),
    topic: str | None = option("The topic of a transaction that hangs.", metavar="TOPIC"),
    partition: int | None = option("The partition of that transaction.", metavar="N"),
    start_offset: int | None = option("The offset of the transaction's first record.", metavar="OFFSET"),
    producer_id: int | None = option("The id of the transaction's producer, instead of --start-offset.", metavar="N"),
    dry_run: bool = DRY_RUN,
    place: WritePlace = Place(),
) -> None:
    """Abort the transaction of a transactional id on all its partitions, or one that hangs on one partition."""
    if (transactional_id is None) == (topic is None):
        raise UsageError("name a transactional id, or --topic, --partition and --start-offset")
    if topic is None and (partition, start_offset, producer_id) != (None, None, None):
        raise UsageError("--partition, --start-offset and --producer-id go with --topic")
    if topic is not None and (partition is None or (start_offset is None) == (producer_id is None)):
        raise UsageError("--topic goes with --partition and one of --start-offset and --producer-id")
    with place.session().open_client(is_read_only=dry_run) as client:
        admin = TransactionAdmin(client)
        if transactional_id is not None:
            known = admin.describe(transactional_id)  # or it would be made
            if dry_run:
                count = len(known.partitions)
                fenced = "would be fenced, and what it has open"
                say(f"{transactional_id} {client.place}: {fenced} on {count} partitions aborted")
                return
            admin.fence(transactional_id)
            say(f"{transactional_id} {client.place}: no transaction is open any more, and its producer is fenced")
            return
        found = _find(admin, topic or "", partition or 0, start_offset, producer_id)
        if not dry_run:
            admin.abort_on_partition(found)
    done = "would abort" if dry_run else "aborted"
    say(f"{done} the transaction of producer {found.producer_id} of {found.partition} {client.place}")


def _find(
    admin: TransactionAdmin, topic: str, partition: int, start_offset: int | None, producer_id: int | None
) -> OpenTransaction:
    """Returns the open transaction with that first offset or that producer id. Raises KafkaError if there is none, or
    if a coordinator knows the transaction: the coordinator must end it on all partitions at once.
    """
    for transaction in admin.open_transactions([topic]):
        is_wanted = transaction.start_offset == start_offset or transaction.producer_id == producer_id
        if transaction.partition.partition != partition or not is_wanted:
            continue
        known = transaction.known
        if known is not None and not transaction.is_hanging:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction is known to its coordinator, {known.state}: ending it on one partition alone would "
                "tear it apart",
                hint=f"plog transaction abort {known.transactional_id}{typed_place()}",
            )
        return transaction
    where = f"at offset {start_offset}" if start_offset is not None else f"of producer {producer_id}"
    raise KafkaError(
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        f"no transaction is open on {topic}-{partition} {where}",
        hint="plog transaction find-hanging --all shows those that are",
    )


def _time(timestamp_ms: int) -> str | None:
    return time_text(timestamp_ms) if timestamp_ms >= 0 else None


def _seconds_since(timestamp_ms: int) -> int | None:
    return round(time.time() - timestamp_ms / 1000) if timestamp_ms >= 0 else None
