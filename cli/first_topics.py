"""Creates the topics of `plog serve --topic`, and writes the files of `--seed` into them, while the broker starts.

The options are checked, and each file is read, before a topic is created. Topics that exist are compared with the
options; a topic that has had records is not seeded, so that a broker may be started again with the same options. The
records of a file are one transaction: a start that is cut off leaves none of them, and the next start seeds again.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from cli.known_settings import hint_at_topic_setting, say_kept_only
from cli.options import parse_settings
from cli.terminal import say
from core.client.admin.admin import Admin
from core.client.net.kafka_client import KafkaClient, TopicInfo
from core.client.net.retry import FAILOVER_SECONDS, Retry
from core.client.read.cluster_source import ClusterSource
from core.client.read.record_source import ReadOptions
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, CorruptRecordError, KafkaError, UsageError
from core.common.filesystem import access_error
from core.common.topic_partition import TopicPartition, ensure_valid_topic_name, name_in_metrics
from core.files.log_config import TOPIC_CONFIG, parse_topic_configs
from core.pipeline.frontend import Frontend
from core.pipeline.produce import RowWriter
from core.pipeline.produce_request import ProduceRequest
from core.pipeline.session import Session
from core.records.compression import CompressionType, decompress

SeedFormat = Literal["lines", "envelope", "csv", "raw"]

_BEFORE_SETTING = re.compile(r":(?=[a-z][a-z0-9.]*=)")
_GRAMMAR = "expected NAME[:PARTITIONS][:KEY=VALUE].."
_NO_TRANSACTIONS = (
    "a seed is a transaction, and the cluster has too few brokers for these: --set "
    "transaction.state.log.replication.factor=1 --set transaction.state.log.min.isr=1 does with one"
)


class FirstTopic(NamedTuple):
    name: str
    partitions: int
    """-1 if nobody said how many."""
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Seed:
    """A file of records for a topic; immutable."""

    text: str
    """TOPIC=FILE, as it was typed."""
    topic: str
    path: Path
    unpacked: bytes | None
    """The content of a file that is compressed."""
    format: SeedFormat
    last_partition: int = -1
    """The largest partition that a record names, or -1."""

    def request(self) -> ProduceRequest:
        inputs: list[Path | BinaryIO] = [self.path if self.unpacked is None else io.BytesIO(self.unpacked)]
        return ProduceRequest(
            topic=self.topic, inputs=inputs, format=self.format, transactional_id=f"plog-seed-{self.topic}"
        )


class FirstTopics(NamedTuple):
    topics: Sequence[FirstTopic]
    seeds: Sequence[Seed]

    def make(self, client: KafkaClient, where: str) -> None:
        """Creates the topics that are missing, and fills those that never had records. Raises UsageError for a topic
        that exists and is another than was asked for, and what the broker raises. `where` names the broker in hints,
        after a space.
        """
        admin = Admin(client)
        names = [topic.name for topic in self.topics]
        # a broker that has just joined its cluster disconnects whoever asks until it knows all topics
        existing = Retry(FAILOVER_SECONDS).call(
            lambda: client.refresh(names, skips_unknown=True), ConnectionFailedError
        )
        missing = [topic for topic in self.topics if topic.name not in existing]
        for topic in self.topics:
            if topic.name in existing:
                _ensure_as_asked(admin, topic, existing[topic.name], where)
            else:
                _create(admin, topic, validate_only=True)
        for topic in missing:
            _create(admin, topic)
        session = Session(directory=Path(), options=where, frontend=Frontend(say=say))
        for seed in self.seeds:
            _fill(client, seed, session)


def parse_first_topics(
    topics: Sequence[str], seeds: Sequence[str], seed_format: SeedFormat | None, *, is_kafka_3: bool
) -> FirstTopics:
    """Parses the options, and reads the files. Raises UsageError for what is not right, also a line of a file that is
    not a record; AccessError for a file that can't be read.
    """
    if seed_format is not None and not seeds:
        raise UsageError("--seed-format is the format of --seed, and goes with it")
    parsed = [_parse_topic(text, is_kafka_3=is_kafka_3) for text in topics]
    named: dict[str, str] = {}
    for topic in parsed:
        other = named.setdefault(name_in_metrics(topic.name), topic.name)
        if other is not topic.name:
            same = "is there twice" if other == topic.name else f"and {other} have the same name in Kafka's metrics"
            raise UsageError(f"--topic {topic.name} {same}")
    read = [_read_seed(text, seed_format) for text in seeds]
    for seed in read:
        if sum(one.topic == seed.topic for one in read) > 1:
            raise UsageError(f"--seed {seed.topic} is there twice", hint="put the records into one file")
    known = {topic.name: topic for topic in parsed}
    for seed in read:
        asked = known.setdefault(seed.topic, FirstTopic(seed.topic, -1, {}))
        if 0 <= asked.partitions <= seed.last_partition:
            raise _too_few_partitions(seed, asked.partitions)
    return FirstTopics(list(known.values()), read)


def _parse_topic(text: str, *, is_kafka_3: bool) -> FirstTopic:
    head, *settings = _BEFORE_SETTING.split(text)
    name, *numbers = head.split(":")
    what = f"--topic {text}"
    if len(numbers) > 1:
        raise UsageError(
            f"{what}: {numbers[1]} is no KEY=VALUE; {_GRAMMAR}",
            hint="replicas are set for all topics: --set default.replication.factor=N",
        )
    if numbers and not (numbers[0].isascii() and numbers[0].isdecimal() and 0 < int(numbers[0]) < 1 << 31):
        raise UsageError(f"{what}: {numbers[0] or 'nothing'} is no number of partitions; {_GRAMMAR}")
    configs = parse_settings(settings)
    try:
        ensure_valid_topic_name(name)
        parse_topic_configs(configs, is_kafka_3=is_kafka_3)
    except KafkaError as error:
        hint_at_topic_setting(error, configs)
        raise UsageError(f"{what}: {error.message}", hint=error.hint) from error
    return FirstTopic(name, int(numbers[0]) if numbers else -1, configs)


def _read_seed(text: str, seed_format: SeedFormat | None) -> Seed:
    topic, separator, file = text.partition("=")
    if not separator or not file:
        raise UsageError(f"--seed {text}: expected TOPIC=FILE")
    path, unpacked = Path(file), None
    try:
        ensure_valid_topic_name(topic)
    except KafkaError as error:
        raise UsageError(f"--seed {text}: {error.message}") from error
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UsageError(f"--seed {text}: {path} is no regular file, and a seed is read twice")
    ProduceRequest(topic=topic, inputs=[path]).ensure_readable()
    if path.suffix == ".gz":
        try:
            unpacked = decompress(CompressionType.GZIP, path.read_bytes())
        except CorruptRecordError as error:
            raise UsageError(f"--seed {text}: {path} does not decompress by gzip: {error.message}") from error
        except OSError as error:
            raise access_error(error, path, "read") from error
    name = path.with_suffix("") if unpacked is not None else path
    seed = Seed(text, topic, path, unpacked, seed_format or ("csv" if name.suffix == ".csv" else "lines"))
    last = -1
    for batch in seed.request().batches(lambda _note: None):
        if batch.bad is not None:
            raise UsageError(f"{path}: {batch.bad.message}", hint="plog produce --dry-run reads a file the same way")
        if batch.rows.partitions is not None and len(batch.rows):
            last = max(last, int(batch.rows.partitions.max()))
    return Seed(text, topic, path, unpacked, seed.format, last)


def _too_few_partitions(seed: Seed, count: int) -> UsageError:
    return UsageError(
        f"--seed {seed.text}: a record is for partition {seed.last_partition}, and {seed.topic} has {count} "
        f"partition{'s' * (count != 1)}",
        hint=f"--topic {seed.topic}:{seed.last_partition + 1}",
    )


def _create(admin: Admin, topic: FirstTopic, *, validate_only: bool = False) -> None:
    try:
        admin.create_topic(topic.name, partitions=topic.partitions, configs=topic.configs, validate_only=validate_only)
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        return  # another member of the cluster was faster, and was asked for the same
    if not validate_only:
        say_kept_only(admin, ConfigResourceType.TOPIC, topic.name, topic.configs)


def _ensure_as_asked(admin: Admin, topic: FirstTopic, found: TopicInfo, where: str) -> None:
    count = len(found.partitions)
    if topic.partitions not in (-1, count):
        is_larger = topic.partitions > count
        more = f"; plog topic alter {topic.name} --partitions {topic.partitions}{where} adds them" * is_larger
        raise UsageError(
            f"--topic {topic.name}:{topic.partitions}: the topic is there, with {count} partition{'s' * (count != 1)}",
            hint=f"--topic {topic.name} takes it as it is{more}",
        )
    if not topic.configs:
        return
    values = {config.name: config.value for config in admin.describe_configs(ConfigResourceType.TOPIC, topic.name)}
    for key, asked in topic.configs.items():
        value = values.get(key)
        if value is None or _meaning(key, value) != _meaning(key, asked):
            raise UsageError(
                f"--topic {topic.name}: {key}={asked} was asked for, and the topic is there with "
                f"{'no value' if value is None else f'{key}={value}'}",
                hint=f"--topic {topic.name} takes it as it is; plog topic alter {topic.name} --set "
                f"{key}={asked}{where} changes it",
            )


def _meaning(key: str, text: str) -> object:
    value = TOPIC_CONFIG[key].parse(text)
    return set(value) if isinstance(value, list | tuple) else value


def _fill(client: KafkaClient, seed: Seed, session: Session) -> None:
    """Writes the records, unless the topic has, or had, some."""
    source = ClusterSource(client, ReadOptions())
    partitions = [TopicPartition(seed.topic, number) for number in source.partitions(seed.topic)]
    if len(partitions) <= seed.last_partition:
        raise _too_few_partitions(seed, len(partitions))
    starts, ends = source.starts(partitions), source.ends(partitions)
    # What an open or aborted transaction left in it is no record: a seed that was cut off leaves that.
    if any(starts.values()) or any(batches for _, batches in source.read(starts, ends)):
        say(f"{seed.topic} has records already, up to offset {max(ends.values()):,}: not seeded from {seed.path}")
        return
    request = seed.request()
    try:
        RowWriter(client, request, session).write(request.batches(say))
    except KafkaError as error:
        error.message = f"--seed {seed.text}: {error.message}"
        if error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            error.hint = _NO_TRANSACTIONS
        elif error.code is ErrorCode.MESSAGE_TOO_LARGE:
            error.hint = f"--topic {seed.topic}:max.message.bytes=BYTES, or plog topic alter for one that is there"
        raise
