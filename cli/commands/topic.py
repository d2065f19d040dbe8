"""`plog topic create | list | describe | alter | delete-records | delete`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cli.data_location import Place, ReadPlace, WritePlace, typed_place
from cli.options import DRY_RUN, YES, parse_settings
from cli.output import OUTPUT, Listing, OutputFormat, Row, write_rows
from cli.plog_command import command, new_app
from cli.terminal import say
from core.common.command_option import REQUIRED, argument, flag, option, options
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, UsageError
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition, is_valid_topic_name, uuid_text

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient
    from core.cluster.description.cluster_description import TopicDescription
    from core.cluster.description.replicated_partition import ReplicatedPartition

app = new_app("Create, list, describe, alter, trim and delete topics.", "plog topic describe flights")

REGEX = flag("Take each name as a regular expression, which must match a whole name.", "-r")
SETTINGS = options("A topic setting.", "--set", "--config", metavar="KEY=VALUE")


@command(app, "plog topic create flights --partitions 4 --set retention.ms=-1")
def create(
    name: str = argument("The new topic."),
    like: str | None = option("Take partitions and settings from this topic.", metavar="TOPIC", completes="topic"),
    partitions: int = option("How many partitions; -1 is the broker's default.", default=-1),
    replication_factor: int = option(
        "How many copies of each partition there are; -1 is the broker's default.", default=-1
    ),
    settings: list[str] | None = SETTINGS,
    if_not_exists: bool = flag("Do nothing if the topic exists."),
    dry_run: bool = DRY_RUN,
    place: WritePlace = Place(),
) -> None:
    """Create a topic."""
    from cli.known_settings import hint_at_topic_setting, say_kept_only
    from core.client.admin.admin import Admin
    from core.common.config_def import ConfigResourceType

    configs = parse_settings(settings or [])
    with place.session().open_client(makes_directory=True) as client:
        if like is not None:
            twin = Admin(client).describe_topic(like)
            configs = {**twin.configs, **configs}
            partitions = len(twin.partitions) if partitions == -1 else partitions
        try:
            admin = Admin(client)
            admin.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                validate_only=dry_run,
            )
        except KafkaError as error:
            if not if_not_exists or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                hint_at_topic_setting(error, configs)
                _hint_at_brokers(error, client)
                raise
            say(f"topic {name} is there already")
        else:
            if not dry_run:
                say_kept_only(admin, ConfigResourceType.TOPIC, name, configs)
            say(f"{'would create' if dry_run else 'created'} topic {name} {client.place}")


def _hint_at_brokers(error: KafkaError, client: KafkaClient) -> None:
    if error.code is ErrorCode.INVALID_REPLICATION_FACTOR:
        client.refresh([])
        count = len(client.node_ids)
        error.hint = f"each replica needs a broker of its own: --replication-factor {count} is the most here"


@command(app, "plog topic list --output json", "plog topic list --regex 'fl.*'", name="list")
def list_(
    names: list[str] | None = argument(
        "Only these topics.", default=None, metavar="[NAME...]", completes="topic", show_default=False
    ),
    regex: bool = REGEX,
    internal: bool = flag("Include Kafka's own topics."),
    deleting: bool = flag("List the topics that are being deleted, and the brokers that their deletion waits for."),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """List the topics."""
    from core.client.cluster_admin.cluster_admin import ClusterAdmin
    from core.client.net.kafka_client import KafkaClient
    from core.cluster.description.directory_topics import DirectoryTopics

    if names:
        from cli.topic_names import pick_topics
    if regex and not names:
        raise UsageError("--regex goes with NAME: the expressions that names must match")
    with place.session().open_source() as source:
        if deleting:
            going = ClusterAdmin(source).topics_being_deleted() if isinstance(source, KafkaClient) else {}
            picked = pick_topics(names, going, is_regex=regex, with_internal=internal) if names else []
            left: list[Row] = [
                {"topic": name, "replicas_left": one.replicas, "on": one.brokers, "waits_for": one.waits_for}
                for name, one in sorted(going.items())
                if not names or name in picked
            ]
            write_rows(left, ["topic", "replicas_left", "on", "waits_for"], output)
            return
        if isinstance(source, KafkaClient):
            counts = {topic.name: len(topic.partitions) for topic in source.refresh().values()}
        else:
            counts = {name: len(numbers) for name, numbers in DirectoryTopics(source).partitions().items()}
    picked = pick_topics(names, counts, is_regex=regex, with_internal=internal) if names else []
    rows: list[Row] = [
        {"topic": name, "partitions": count}
        for name, count in sorted(counts.items())
        if (name in picked if names else internal or not name.startswith("__"))
    ]
    write_rows(rows, ["topic", "partitions"], output)


@command(app, "plog topic describe flights", "plog topic describe flights --usage")
def describe(
    names: list[str] = argument("Which topics.", metavar="NAME...", completes="topic"),
    usage: bool = flag("Show who uses them instead: creation, first and last write, producers, and groups."),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Describe topics: partitions, leaders, offsets, sizes and settings; or with --usage who writes and reads them."""
    if usage:
        from cli.topic_names import show_usage

        show_usage(names, place, output)
        return
    from cli.topic_names import partition_rows, sum_text
    from core.client.admin.admin import Admin
    from core.client.cluster_admin.cluster_partitions import with_moves
    from core.client.net.kafka_client import KafkaClient
    from core.cluster.description.directory_topics import DirectoryTopics

    notes: list[str] = []
    with place.session().open_source() as source:
        describe_one = (
            Admin(source).describe_topic if isinstance(source, KafkaClient) else DirectoryTopics(source).describe
        )
        topics = [describe_one(name) for name in names]
        placed = [partition for topic in topics for partition in topic.placed]
        if isinstance(source, KafkaClient) and output is OutputFormat.table:
            placed = with_moves(source, placed, notes)
    rows: list[Row] = [row for topic in topics for row in partition_rows(topic)]
    if output is OutputFormat.table:
        for topic in topics:
            settings = " ".join(f"{key}={value}" for key, value in sorted(topic.configs.items())) or "none of its own"
            count = len(topic.partitions)
            say(f"{topic.name}: id {uuid_text(topic.topic_id)}, {count} partitions, settings: {settings}")
            say(sum_text(topic))
        _say_health(topics, placed, notes)
    is_replicated = any(len(p.replicas) > 1 for topic in topics for p in topic.partitions)
    (_REPLICATED if is_replicated else _PARTITIONS).write(rows, output)


def _say_health(
    topics: Iterable[TopicDescription], placed: Sequence[ReplicatedPartition], notes: Iterable[str]
) -> None:
    """Points to more help, if a partition has no leader or lacks a replica in the ISR. An adding replica is not
    missing.
    """
    from core.cluster.description.cluster_health import names_text, partition_health

    for note in notes:
        say(f"note: {note}")
    if moved := [one.partition for one in placed if one.adding]:
        say(f"note: replicas are being added: {names_text(moved)}")
    health = partition_health(placed)
    for topic in topics:
        faulty = sorted({p for p in (*health.leaderless, *health.under_replicated) if p.topic == topic.name})
        if faulty:
            count = f"{len(faulty)} of {len(topic.partitions)} partitions"
            say(f"note: {topic.name}: {count} lack a leader or a replica in sync")
            say(f"hint: plog cluster describe {faulty[0]}{typed_place()}")


_PARTITIONS = Listing(
    "topic partition leader leader_epoch replicas isr start_offset end_offset offsets size_bytes skew damaged",
    further="topic_id settings",
    drops="skew leader_epoch isr offsets replicas size_bytes leader",
    hides_unknown=True,
)
_REPLICATED = _PARTITIONS._replace(drops="skew leader_epoch offsets size_bytes start_offset replicas")


@command(app, "plog topic alter flights --set retention.ms=604800000 --partitions 8")
def alter(
    name: str = argument("Which topic.", completes="topic"),
    partitions: int | None = option("Raise the number of partitions to N; it can't be lowered."),
    settings: list[str] | None = SETTINGS,
    unset: list[str] | None = option("Reset a setting to its default.", metavar="KEY"),
    dry_run: bool = DRY_RUN,
    place: WritePlace = Place(),
) -> None:
    """Change a topic's settings, or give it more partitions."""
    from cli.known_settings import alter_settings
    from core.client.admin.admin import Admin, AlterOperation
    from core.common.config_def import ConfigResourceType
    from core.protocol.schema.configs import ChangedConfig

    changes = [ChangedConfig(key, AlterOperation.SET, value) for key, value in parse_settings(settings or []).items()]
    changes += [ChangedConfig(key, AlterOperation.DELETE, None) for key in unset or []]
    if not changes and partitions is None:
        raise UsageError("nothing to change: give --partitions, --set or --unset")
    with place.session().open_client() as client:
        admin = Admin(client)
        if changes:
            type_, title = ConfigResourceType.TOPIC, f"topic {name}"
            alter_settings(admin, type_, name, changes, title=title, validate_only=dry_run)
        if partitions is not None:
            admin.create_partitions(name, partitions, validate_only=dry_run)
            say(
                "warning: a key's partition depends on the number of partitions: new records may go to another "
                "partition than earlier ones with the same key, and their order is lost"
            )
    say(f"{'would alter' if dry_run else 'altered'} topic {name} {client.place}")


@command(app, "plog topic delete-records flights --before 100 --partition 0", name="delete-records")
def delete_records(
    name: str = argument("Which topic.", completes="topic"),
    before: str = option(
        "OFFSET, -N (all but the last N), end, or a TIME as in `plog consume`.", default=REQUIRED, metavar="PLACE"
    ),
    partitions: list[int] | None = options("Only this partition.", "--partition"),
    dry_run: bool = DRY_RUN,
    place: WritePlace = Place(),
) -> None:
    """Delete the records of a topic before an offset, a time or the end.

    Consumers don't see them any more. The disk space of whole segments becomes free.
    """
    from core.client.admin.admin import Admin
    from core.client.read.cluster_source import ClusterSource
    from core.client.read.record_source import ReadOptions
    from core.pipeline.consume_request import resolve

    with place.session().open_client() as client:
        source = ClusterSource(client, ReadOptions(read_committed=False))
        there = source.partitions(name)
        missing = sorted(set(partitions or ()) - set(there))
        if missing:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} has no partition {missing[0]}")
        wanted = [TopicPartition(name, number) for number in partitions or there]
        places = resolve(before, source, wanted, source.ends(wanted))
        starts = places if dry_run else Admin(client).delete_records(places)
    for partition, start in sorted(starts.items()):
        say(f"{partition} {'would start' if dry_run else 'starts'} at offset {start} {client.place}")


@command(app, "plog topic delete flights", "plog topic delete --regex 'test-.*' --dry-run")
def delete(
    names: list[str] = argument("Which topics.", metavar="NAME...", completes="topic"),
    regex: bool = REGEX,
    if_exists: bool = flag("Ignore topics that do not exist."),
    internal: bool = flag("Delete even Kafka's own topics, which brokers need."),
    dry_run: bool = DRY_RUN,
    yes: bool = YES,
    place: WritePlace = Place(),
) -> None:
    """Delete topics and all their records.

    With --regex it shows the topics, their size and the groups that read them, and asks for a confirmation.
    """
    from cli.topic_names import REGEX_HINT, confirm_deletion, sum_text
    from core.client.admin.admin import Admin

    if regex and internal:
        raise UsageError("--internal goes with names: an expression never deletes Kafka's own topics")
    kept = [] if internal or regex else [name for name in names if name in INTERNAL_TOPICS]
    if kept:
        raise UsageError(
            f"{kept[0]} is Kafka's own topic: the cluster keeps its state there", hint="--internal deletes it"
        )
    readers: dict[str, str] = {}
    with place.session().open_client(is_read_only=dry_run) as client:
        if regex:
            names, readers = confirm_deletion(client, names, is_confirmed=yes, dry_run=dry_run, may_be_none=if_exists)
        refused = []
        for name in names:
            try:
                if dry_run:
                    text = sum_text(Admin(client).describe_topic(name)) + readers.get(name, "")
                else:
                    Admin(client).delete_topics([name])
            except KafkaError as error:
                if not if_exists or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    hint = error.hint if is_valid_topic_name(name) else REGEX_HINT
                    refused.append(KafkaError(error.code, f"{name}: {error.message}", hint=hint))
            else:
                done = (
                    f"would delete topic {name} {client.place}: {text}"
                    if dry_run
                    else f"deleted topic {name} {client.place}"
                )
                say(done)
        for one in refused[:-1]:
            say(f"error: {one.code.name}: {one.message}")
        if refused:
            raise refused[-1]
