"""`plog group list | describe | reset-offsets | delete | delete-offsets | remove-members`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.data_location import Place, ReadPlace, WritePlace, typed_place
from cli.options import DRY_RUN, YES, ensure_meant
from cli.output import OUTPUT, Listing, OutputFormat, Row
from cli.plog_command import command, new_app
from cli.terminal import clear_screen, say
from core.client.admin.group_admin import GroupAdmin, GroupDescription, GroupMember
from core.common.command_option import argument, flag, option, options
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, UsageError
from core.common.time_text import duration_text, time_text

if TYPE_CHECKING:
    from core.client.read.group_offset_reset import GroupPartition

app = new_app(
    "List and describe consumer groups; move and delete the offsets that they committed; remove members.",
    "plog group describe etl",
)

GROUP = argument("Which group.", metavar="GROUP", completes="group")
GROUPS = argument("Which groups.", metavar="GROUP...", completes="group")
TOPICS = options("A topic, or some of its partitions.", "--topic", metavar="TOPIC[:N,N..]")


@command(app, "plog group list --state stable", "plog group list --topic flights", name="list")
def list_(
    state: list[str] | None = options("Only groups in this state.", metavar="STATE"),
    topics: list[str] | None = options(
        "Only groups that read this topic, or some of its partitions, with their lag.",
        "--topic",
        metavar="TOPIC[:N,N..]",
        completes="topic",
    ),
    no_times: bool = flag("With --topic: do not read __consumer_offsets for the times of the last commits."),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """List the consumer groups; or with --topic those that read a topic, with their lag there and their last commit."""
    wanted = {name.lower() for name in state or ()}
    if not wanted <= _STATES.keys():
        raise UsageError(
            f"--state {min(wanted - _STATES.keys())}: no state of a group", hint=", ".join(_STATES.values())
        )
    if no_times and not topics:
        raise UsageError("--no-times goes with --topic")
    if topics:
        _list_readers(topics, wanted, place, output, with_times=not no_times)
        return
    with place.session().open_client(is_read_only=True, rests_on=_are_groups, opens_late=True) as client:
        rows: list[Row] = [
            {"group": g.group_id, "state": g.state, "type": g.type.lower(), "protocol_type": g.protocol_type}
            for g in GroupAdmin(client).list_groups()
            if not wanted or g.state.lower() in wanted
        ]
        Listing("group state type protocol_type", drops="protocol_type type").write(rows, output)


def _list_readers(topics: list[str], states: set[str], place: Place, output: OutputFormat, *, with_times: bool) -> None:
    from cli.progress import Progress
    from core.client.read.group_offset_reset import parse_topics
    from core.view.groups.topic_readers import find_topic_readers

    names = {topic.partition(":")[0] for topic in topics}
    session = place.session()
    with session.open_client(
        is_read_only=True, rests_on=lambda topic: _are_groups(topic) or topic in names, opens_late=True
    ) as client:
        partitions = parse_topics(client, topics)
        with Progress("asked about", "groups") as progress:
            found = find_topic_readers(
                client, partitions, lambda text: say(f"note: {text}"), progress.add, with_times=with_times
            )
        rows: list[Row] = [
            {
                **one._asdict(),
                "group": one.group_id,
                "last_commit": None if one.last_commit_ms is None else time_text(one.last_commit_ms),
                "note": one.problem or None,
            }
            for one in found
            if not states or one.state.lower() in states
        ]
        if not rows:
            say(f"no group {'in that state ' if states and found else ''}reads {' or '.join(topics)}")
        _READERS.write(rows, output)


_READERS = Listing(
    "group topic state type members partitions lag last_commit note",
    drops="type note topic partitions last_commit members",
)


_STATES = {
    name.lower(): name
    for name in (
        "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable", "Dead", "NotReady",
        "Unknown",
    )
}  # fmt: skip
"""States of all kinds of groups, as Kafka calls them."""


def _are_groups(topic: str) -> bool:
    return topic == "__consumer_offsets"


@command(app, "plog group describe etl --output json", "plog group describe --all-groups")
def describe(
    groups: list[str] | None = argument(
        "Which groups.", default=None, metavar="[GROUP...]", completes="group", show_default=False
    ),
    all_groups: bool = flag("All groups."),
    members: bool = flag("Show the members, and what each of them reads."),
    watch: float | None = option(
        "Show it again at this interval, with the records read per second.", metavar="SECONDS", min=0.1
    ),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Show how far groups have read, and their lag; or with --members, who is in them."""
    if bool(groups) == all_groups:
        raise UsageError(
            "a GROUP and --all-groups do not go together" if groups else "Missing argument 'GROUP...'.",
            hint="plog group list names the groups; --all-groups shows all",
        )
    from core.client.read.group_offset_reset import find_group_partitions

    committed: set[str] = set()

    def is_looked_at(topic: str) -> bool:
        return _are_groups(topic) or topic in committed

    with place.session().open_client(is_read_only=True, rests_on=is_looked_at, opens_late=True) as client:
        admin = GroupAdmin(client)

        def look() -> tuple[list[str], list[Row]]:
            headlines: list[str] = []
            rows: list[Row] = []
            for group_id in groups or [one.group_id for one in admin.list_groups()]:
                group = admin.describe(group_id)
                headlines.append(_headline(group))
                if members:
                    rows += [{"group": group_id, **_member_cells(member)} for member in group.members]
                    continue
                offsets = admin.offsets(group_id)
                committed.update(partition.topic for partition in offsets)
                found = find_group_partitions(client, group, offsets, time.time_ns() // 1_000_000)
                rows += [_offset_row(group_id, row) for row in found]
            return headlines, rows

        for headlines, rows in [look()] if watch is None else _watched(look, watch):
            for headline in headlines:
                say(headline)
            if members:
                _MEMBERS.write(rows, output)
            elif output is OutputFormat.table:
                _OFFSETS_FOR_PEOPLE.write(list(map(_by_time, rows)), output)
            else:
                _OFFSETS.write(rows, output)


def _offset_row(group_id: str, row: GroupPartition) -> Row:
    member = {} if row.member is None else _member_cells(row.member)
    return {**member, **row._asdict(), **row.partition._asdict(), "group": group_id, "note": row.problem or None}


def _member_cells(member: GroupMember) -> Row:
    partitions = None if member.partitions is None else sorted(map(str, member.partitions))
    names = {"instance_id": member.group_instance_id, "host": member.client_host}
    return {**asdict(member), **names, "partitions": partitions}


def _watched(look: Callable[[], tuple[list[str], list[Row]]], seconds: float) -> Iterator[tuple[list[str], list[Row]]]:
    """Yields what `look` returns, every so many seconds, for ever; rows have the records read per second since."""
    before: dict[Any, int] = {}
    looked_s = time.monotonic()
    while True:
        headlines, rows = look()
        now_s = time.monotonic()
        places = [(row["group"], row.get("topic"), row.get("partition")) for row in rows]
        found = zip(places, (row.get("offset") for row in rows), strict=True)
        offsets = {place: offset for place, offset in found if offset is not None}
        speeds = {
            place: round((offset - before[place]) / (now_s - looked_s), 1)
            for place, offset in offsets.items()
            if place in before
        }
        clear_screen()
        yield headlines, [{**row, "read_per_s": speeds.get(place)} for place, row in zip(places, rows, strict=True)]
        before, looked_s = offsets, now_s
        time.sleep(seconds)


def _by_time(row: Row) -> Row:
    lag_ms = row.get("lag_ms")
    return {**row, "lag_time": None if lag_ms is None else duration_text(lag_ms)}


_OFFSETS = Listing(
    "group topic partition offset end_offset lag lag_ms note read_per_s metadata member_id client_id host",
    drops="host client_id metadata member_id lag_time read_per_s group",  # the group is in the line above the table
    hides_unknown=True,
)
_OFFSETS_FOR_PEOPLE = _OFFSETS._replace(columns=_OFFSETS.columns.replace("lag_ms", "lag_time"))
_MEMBERS = Listing(
    "group member_id instance_id client_id host partitions",
    drops="host client_id member_id instance_id group",
    hides_unknown=True,
)


def _headline(group: GroupDescription) -> str:
    protocol = f", {group.protocol}" if group.protocol else ""
    return (
        f"{group.group_id}: {group.state}, {group.type}{protocol}, {len(group.members)} members, "
        f"coordinator {group.coordinator}"
    )


@command(app, "plog group reset-offsets etl --topic flights --to-datetime 2013-01-15T00:00:00Z", name="reset-offsets")
def reset_offsets(
    group: str = GROUP,
    topics: list[str] | None = TOPICS,
    all_topics: bool = flag("All topics that the group committed offsets of."),
    to_earliest: bool = flag("To the first record."),
    to_latest: bool = flag("To the end: after the last record."),
    to_current: bool = flag("To the group's committed offset, or the end if it has none."),
    to_offset: int | None = option("To this offset.", metavar="OFFSET"),
    shift_by: int | None = option("Forward by N records, or back if N is negative.", metavar="N"),
    to_datetime: str | None = option("To the first record of this time or later.", metavar="TIME"),
    by_duration: str | None = option("To the first record of the time since this long ago.", metavar="PnDTnHnMnS"),
    from_file: Path | None = option(
        "To the offsets in this file, with lines of topic,partition,offset.", metavar="CSV"
    ),
    apply: bool = flag("Carry out the plan. Without it the plan is only shown.", "--apply", "--execute"),
    dry_run: bool = flag("Only show the plan, as without --apply."),  # noqa: ARG001
    output: OutputFormat = OUTPUT,
    place: WritePlace = Place(),
) -> None:
    """Move the offsets of a group that has no members at the moment.

    It shows what it would do, and does it with --apply.
    """
    from core.client.read.group_offset_reset import Reset, find_partitions, new_offsets, read_offsets_file

    reset = Reset.of(
        to_earliest=to_earliest or None,
        to_latest=to_latest or None,
        to_current=to_current or None,
        to_offset=to_offset,
        shift_by=shift_by,
        to_datetime=to_datetime,
        by_duration=by_duration,
        from_file=None if from_file is None else read_offsets_file(from_file),
    )
    with place.session().open_client() as client:
        admin = GroupAdmin(client)
        committed = admin.offsets(group)
        if apply:
            _ensure_inactive(admin, group)
        partitions = find_partitions(client, committed, topics or (), reset, all_topics=all_topics)
        targets = new_offsets(client, committed, partitions, reset, say=say)
        if apply:
            admin.commit(group, targets)
    rows: list[Row] = [
        {
            "group": group,
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": committed[partition].offset if partition in committed else None,
            "new_offset": offset,
        }
        for partition, offset in sorted(targets.items())
    ]
    Listing("group topic partition offset new_offset", drops="group").write(rows, output)
    done = f"offsets of group {group} were reset {client.place}"
    say(done if apply else "nothing was changed: --apply does it")


def _ensure_inactive(admin: GroupAdmin, group_id: str) -> None:
    try:
        group = admin.describe(group_id)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    if group.members:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group_id} is {group.state}, with {len(group.members)} members",
            hint="offsets can be moved when its consumers have stopped",
        )


@command(app, "plog group delete etl")
def delete(groups: list[str] = GROUPS, dry_run: bool = DRY_RUN, place: WritePlace = Place()) -> None:
    """Delete groups that have no members, and the offsets that they committed."""
    with place.session().open_client(is_read_only=dry_run) as client:
        admin = GroupAdmin(client)
        for group_id in groups:
            if dry_run:
                _ensure_empty(admin.describe(group_id))
                count = len(admin.offsets(group_id))
                say(f"would delete group {group_id} {client.place}, and its offsets of {count} partitions")
                continue
            admin.delete(group_id)
            say(f"deleted group {group_id} {client.place}")


def _ensure_empty(group: GroupDescription) -> None:
    """Raises KafkaError as the broker would for a group with members."""
    if group.members:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group.group_id} has {len(group.members)} members")


@command(app, "plog group delete-offsets etl --topic flights:0,1", name="delete-offsets")
def delete_offsets(
    group: str = GROUP, topics: list[str] | None = TOPICS, dry_run: bool = DRY_RUN, place: WritePlace = Place()
) -> None:
    """Delete the offsets that a group committed for topics that none of its members reads."""
    from core.client.read.group_offset_reset import parse_topics

    if not topics:
        raise UsageError("no --topic is given", hint="for example --topic flights, or --topic flights:0,1")
    with place.session().open_client(is_read_only=dry_run) as client:
        partitions = parse_topics(client, topics)
        if dry_run:
            held = GroupAdmin(client).offsets(group).keys() & set(partitions)
            say(f"group {group} {client.place} would forget its offsets of {len(held)} partitions")
            return
        GroupAdmin(client).delete_offsets(group, partitions)
    say(f"group {group} {client.place} forgot its offsets of {len(partitions)} partitions")


@command(app, "plog group remove-members etl --instance worker-3", name="remove-members")
def remove_members(
    group: str = GROUP,
    instances: list[str] | None = options("The static member of this group.instance.id.", "--instance", metavar="ID"),
    all_: bool = flag("All members, static or not."),
    dry_run: bool = DRY_RUN,
    yes: bool = YES,
    output: OutputFormat = OUTPUT,
    place: WritePlace = Place(),
) -> None:
    """Remove members from a group at once, such as static members whose processes are gone.

    A static member keeps its partitions for its session timeout, though nobody reads them. A member that still lives
    joins again, after a rebalance. The exit code is 1 if a member was not removed; the others are.
    """
    from core.files.file_names import ensure_no_cluster
    from core.protocol.schema.groups import MemberIdentity

    wanted = list(dict.fromkeys(instances or ()))
    if bool(wanted) == all_:
        raise UsageError("expected either --instance or --all", hint="plog group describe GROUP --members lists them")
    session = place.session()
    if session.find_server() is None:
        ensure_no_cluster(session.directory)
        raise UsageError(
            f"a group's coordinator removes its members, and nobody serves {session.directory}",
            hint="--bootstrap-server HOST:PORT, or plog serve; members that do not come back are gone after their "
            "session timeout",
        )
    with session.open_client() as client:
        admin = GroupAdmin(client)
        found = admin.describe(group).members
        static = {one.group_instance_id: one for one in found if one.group_instance_id is not None}
        members = list(found) if all_ else [static[name] for name in wanted if name in static]
        if all_ and members and not dry_run and not yes:
            counts = f"{len(static)} static and {len(found) - len(static)} dynamic ones"
            ensure_meant(f"all members of group {group} would lose their partitions, {counts}", f"remove {counts}")
        codes = [ErrorCode.NONE] * len(members)
        if members and not dry_run:
            reason = "removed by plog group remove-members"
            names = [("" if one.group_instance_id else one.member_id, one.group_instance_id) for one in members]
            codes = admin.remove_members(group, [MemberIdentity(*name, reason) for name in names])
    done = "would be removed" if dry_run else "removed"
    rows = [_removed_row(group, one, code.name if code else done) for one, code in zip(members, codes, strict=True)]
    _REMOVED.write(rows, output)
    removed = sum(not code for code in codes)
    say(f"{removed} of {len(found)} members {done} from group {group} {client.place}")
    if not dry_run and any(one.group_instance_id is None for one in members):
        say("note: a dynamic member that still lives joins again at once: stop its process first")
    missing = [name for name in wanted if name not in static]
    if missing:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {group} has no static member {', '.join(missing)}",
            hint=f"plog group describe {group} --members{typed_place()}",
        )
    if removed < len(members):
        raise KafkaError(
            next(filter(None, codes)), f"{len(members) - removed} of {len(members)} were not removed from {group}"
        )


def _removed_row(group: str, member: GroupMember, result: str) -> Row:
    note = "it had left, and was awaited" if member.is_away else None
    return {**_member_cells(member), "group": group, "note": note, "result": result}


_REMOVED = Listing(
    "group instance_id member_id client_id host partitions note result", drops="group host client_id member_id note"
)
