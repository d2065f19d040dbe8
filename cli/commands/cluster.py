"""`plog cluster`: the commands that show a cluster. Those that move replicas or compare them are in cli/cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from cli.cluster.check import check
from cli.cluster.controller import controller
from cli.cluster.elect import elect, forget_replica
from cli.cluster.features import features
from cli.cluster.reassign import drain, reassign
from cli.cluster.served_cluster import find_named_partitions
from cli.cluster.start import start
from cli.cluster_rows import (
    APIS,
    TOPICS,
    api_rows,
    broker_row,
    replica_rows,
    status_rows,
    topic_row,
    write_brokers,
    write_replicas,
    write_status,
)
from cli.data_location import Place, ReadPlace, typed_place
from cli.output import OUTPUT, OutputFormat
from cli.plog_command import command, new_app
from cli.terminal import say, say_failures
from core.client.net.kafka_client import KafkaClient
from core.cluster.description.cluster_description import ClusterDescription
from core.cluster.description.cluster_health import (
    find_problems,
    is_gone,
    led_by_unreachable,
    names_text,
    partition_health,
    with_missing_brokers,
)
from core.cluster.description.replicated_partition import PartitionReport, ReplicatedPartition
from core.common.command_option import argument, flag
from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition, by_topic

if TYPE_CHECKING:
    from core.client.cluster_admin.log_dirs_query import LogDirsQuery
    from core.cluster.controller.leaderless_partition import LeaderlessPartition
    from core.forensics.partition_reader import DirectoryReader

app = new_app(
    "Run or show a cluster, and move things in it: leadership, replicas, and all that a broker holds.",
    "plog cluster status --bootstrap-server 127.0.0.1:9092",
)

_UNSERVED = "no broker serves the directory: this is what its files say"


@command(app, "plog cluster status --bootstrap-server 127.0.0.1:9092")
def status(
    api_versions: bool = flag("List the versions of each API instead of the brokers."),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Show whether a cluster is well: its controller, its brokers, and what its partitions lack.

    For a partition without a leader it says what the partition waits for, what each replica has, and what an election
    would cost now. For a directory that no broker serves, it shows what the metadata log in it says. The exit code is 1
    if something is wrong with the cluster, and 3 if a broker can't be reached from here.
    """
    from core.client.cluster_admin.cluster_partitions import report_leaderless

    placed, problems = None, None
    leaderless: list[LeaderlessPartition] = []
    notes: list[str] = []
    with place.session().open_source() as source:
        if isinstance(source, KafkaClient):
            found, placed = _ask_cluster(source)
            leaderless = report_leaderless(source, found, placed, notes)
            found = with_missing_brokers(found, placed)
            problems = find_problems(found, placed)
        elif api_versions:
            raise UsageError("--api-versions needs a server: nobody serves the data directory")
        else:
            from core.cluster.description.directory_cluster import read_cluster

            found = read_cluster(source.directory)
    if output is OutputFormat.table:
        _say_cluster(found, is_served=placed is not None)
        _say_partitions(found, placed or ())
        if any(one.failure is not None and one.broker_id == found.controller_id for one in found.brokers):
            say("note: the controller can't be reached from here: what other brokers report of partitions may be old")
        _say_notes(notes)
        _say_leaderless(leaderless)
    if api_versions:
        APIS.write(api_rows(found, shows_all=output is OutputFormat.table), output)
    else:
        write_status(status_rows(found, placed, problems, leaderless), output)
    code = say_failures(found.failures)
    _say_problems(problems or (), placed or ())
    raise typer.Exit(max(code, 1 if problems else 0))


@command(app, "plog cluster brokers --bootstrap-server 127.0.0.1:9092")
def brokers(output: OutputFormat = OUTPUT, place: ReadPlace = Place()) -> None:
    """List the brokers of a cluster: what each holds, what it leads, and which of its replicas lag.

    The version is the release of Kafka that a broker is or is like, as far as its features tell.
    """
    from core.client.cluster_admin.cluster_partitions import survey_notes
    from core.client.cluster_admin.log_dirs_query import LogDirsQuery, survey_brokers

    notes: list[str] = []
    with place.session().open_source() as source:
        if isinstance(source, KafkaClient):
            found, placed = _ask_cluster(source, notes)
            surveys = survey_brokers(source, found.brokers)
            notes += survey_notes(surveys)
            if any(broker.versions and broker.release is None for broker in found.brokers):
                notes.append("version is not known: the brokers' features do not tell it")
        else:
            found, reports = _read_directory(source)
            placed = [report.placed for report in reports]
            surveys = _survey_directory(reports)
            notes.append(_UNSERVED)
    found = with_missing_brokers(found, placed)
    unasked = LogDirsQuery()
    rows = [broker_row(broker, placed, surveys.get(broker.broker_id, unasked)) for broker in found.brokers]
    _say_notes(notes)
    write_brokers(rows, output)
    raise typer.Exit(say_failures(found.failures))


@command(app, "plog cluster topics --bootstrap-server 127.0.0.1:9092")
def topics(
    names: list[str] | None = argument(
        "Which topics. Default: all.", default=None, metavar="[TOPIC]...", completes="topic"
    ),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """List the topics of a cluster with their replicas, and how many partitions lack some."""
    from core.client.cluster_admin.cluster_partitions import read_partitions, with_moves

    notes: list[str] = []
    with place.session().open_source() as source:
        if isinstance(source, KafkaClient):
            for name in names or ():
                source.topic(name)  # whose error names the topic that was perhaps meant
            placed = with_moves(source, read_partitions(source, names or None, notes), notes)
        else:
            placed = [report.placed for report in _read_directory(source, names)[1]]
            notes.append(_UNSERVED)
    rows = [topic_row(name, found) for name, found in by_topic((one.partition, one) for one in placed).items()]
    _say_notes(notes)
    TOPICS.write(rows, output)


@command(app, "plog cluster describe flights-0")
def describe(
    names: list[str] = argument(
        "Partitions TOPIC-N or TOPIC:N,N, or all of a TOPIC.", metavar="PARTITION...", completes="topic"
    ),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Describe each replica of a partition: how far it has come, and why it is not in sync if it is not."""
    from core.client.cluster_admin.cluster_partitions import report_partitions

    notes: list[str] = []
    with place.session().open_source() as source:
        if isinstance(source, KafkaClient):
            known = {topic.name: sorted(topic.partitions) for topic in source.refresh().values()}
            wanted = set(find_named_partitions(names, known))
            found, placed = _ask_cluster(source, notes, sorted({partition.topic for partition in wanted}))
            reports = report_partitions(source, found, [p for p in placed if p.partition in wanted], notes)
        else:
            of_directory = _read_directory(source)[1]
            known = by_topic((report.placed.partition, report.placed.partition.partition) for report in of_directory)
            wanted = set(find_named_partitions(names, known))
            reports = [report for report in of_directory if report.placed.partition in wanted]
            notes.append(_UNSERVED)
    _say_notes(notes)
    if output is OutputFormat.table:
        for report in reports:
            _say_report(report)
    write_replicas([row for report in reports for row in replica_rows(report)], output)


command(app, "plog cluster controller --bootstrap-server 127.0.0.1:9092")(controller)
command(app, "plog cluster features --upgrade all --bootstrap-server 127.0.0.1:9092")(features)
command(app, "plog cluster elect --preferred flights --bootstrap-server 127.0.0.1:9092")(elect)
command(app, "plog cluster forget-replica 3 --dry-run --bootstrap-server 127.0.0.1:9092")(forget_replica)
command(app, "plog cluster reassign --topics flights --to 1,2,3 --throttle 50MB/s --bootstrap-server 127.0.0.1:9092")(
    reassign
)
command(app, "plog cluster drain 3 --dry-run --bootstrap-server 127.0.0.1:9092")(drain)
command(app, "plog cluster check flights --bootstrap-server 127.0.0.1:9092")(check)
command(app, "plog cluster start --brokers 3 --data-dir ./cluster")(start)


# --- queries


def _ask_cluster(
    client: KafkaClient, notes: list[str] | None = None, topics: Sequence[str] | None = None
) -> tuple[ClusterDescription, list[ReplicatedPartition]]:
    from core.client.admin.cluster_status import describe_cluster
    from core.client.cluster_admin.cluster_partitions import read_partitions, with_moves

    notes = notes if notes is not None else []
    found, placed = describe_cluster(client), read_partitions(client, topics, notes)
    by_id = {broker.broker_id: broker for broker in found.brokers}
    if found.controller_id in by_id and by_id[found.controller_id].failure is None:
        placed = with_moves(client, placed, notes)
    return found, placed


def _read_directory(
    reader: DirectoryReader, names: Sequence[str] | None = None
) -> tuple[ClusterDescription, list[PartitionReport]]:
    from core.cluster.description.directory_cluster import read_cluster, report_directory
    from core.cluster.description.directory_topics import DirectoryTopics

    topics = DirectoryTopics(reader)
    return read_cluster(reader.directory), report_directory(topics, names or topics.partitions())


def _survey_directory(reports: Iterable[PartitionReport]) -> dict[int, LogDirsQuery]:
    """Returns the files' facts about each broker: about one at most."""
    from core.client.cluster_admin.log_dirs_query import LogDirsQuery

    sizes: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for report in reports:
        for replica in report.replicas:
            if replica.size_bytes is not None:
                sizes[replica.broker_id][report.placed.partition] = replica.size_bytes
    return {broker_id: LogDirsQuery(held) for broker_id, held in sizes.items()}


# --- output


def _say_cluster(found: ClusterDescription, *, is_served: bool) -> None:
    controller = f"controller {found.controller_id}" if found.controller_id >= 0 else "controller not known"
    voters = f" (voters {', '.join(map(str, found.voters))})" if found.voters else ""
    gone = sum(is_gone(broker) for broker in found.brokers) if is_served else 0
    brokers = f"{len(found.brokers) - gone} of {len(found.brokers)}" if gone else f"{len(found.brokers)}"
    say(f"cluster {found.cluster_id or 'without an id'}: {controller}{voters}, brokers: {brokers}")
    if found.features:
        features = ", ".join(f"{name}={level}" for name, level in sorted(found.features.items()))
        say(f"features: {features}")
    if not is_served:
        say("no broker serves the directory: this is what its metadata log says")


_MOST_LEADERLESS = 10

_WORDS = {
    "leaderless": "without a leader",
    "under_replicated": "under-replicated",
    "under_min_isr": "under min.insync.replicas",
    "offline_replicas": "with offline replicas",
    "not_preferred": "not led by the first replica",
}


def _say_partitions(found: ClusterDescription, placed: Sequence[ReplicatedPartition]) -> None:
    if not placed:
        return
    health = partition_health(placed)
    wrong = [f"{count:,} {_WORDS[name]}" for name, count in health.counts.items() if count]
    for broker_id, led in led_by_unreachable(found, placed).items():
        wrong.append(f"{len(led):,} led by a broker that can't be reached: {broker_id}")
    well = "none at fault as far as was known when ZooKeeper went away" if found.cut_off else "all well"
    say(f"partitions: {len(placed):,}, {', '.join(wrong) or well}")
    if moved := [one.partition for one in placed if one.adding]:
        say(f"note: replicas are being added: {names_text(moved)}")
    if health.not_preferred:
        say(f"note: leaders are not the preferred ones, the first replicas: {names_text(health.not_preferred)}")


def _say_leaderless(leaderless: Sequence[LeaderlessPartition]) -> None:
    for one in leaderless[:_MOST_LEADERLESS]:
        say(str(one))
    if len(leaderless) > _MOST_LEADERLESS:
        say(f"and {len(leaderless) - _MOST_LEADERLESS:,} more without a leader: --output json has all")


def _say_problems(problems: Sequence[str], placed: Sequence[ReplicatedPartition]) -> None:
    for problem in problems:
        say(f"error: {problem}")
    first = partition_health(placed).first_at_fault
    if problems and first is not None:
        say(f"hint: plog cluster describe {first}{typed_place()}")


def _say_notes(notes: Sequence[str]) -> None:
    for note in notes:
        say(f"note: {note}")


def _say_report(report: PartitionReport) -> None:
    placed = report.placed
    leader = f"leader {placed.leader}" if placed.has_leader else "no leader"
    preferred = "" if placed.has_preferred_leader or not placed.has_leader else f" (preferred {placed.replicas[0]})"
    text = f"{placed.partition}: {leader}{preferred}, epoch {placed.leader_epoch}"
    text += f", {len(placed.isr)} of {len(placed.replicas)} replicas in sync"
    if placed.min_isr is not None:
        text += f", min.insync.replicas {placed.min_isr}"
        text += ": it refuses acks=all" if placed.is_under_min_isr else ""
    say(text)
    may_lead = ", ".join(map(str, placed.isr or report.elr or ()))
    if not placed.has_leader and may_lead:
        say(f"a broker that has all confirmed records can lead it: {may_lead}, when it is back")
    if report.high_watermark is not None:
        unconfirmed = (report.end_offset or 0) - report.high_watermark
        more = f", {unconfirmed:,} not confirmed by all in sync" if unconfirmed > 0 else ""
        say(f"log end {report.end_offset}, high watermark {report.high_watermark}{more}")
