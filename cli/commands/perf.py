"""`plog perf produce | consume | latency`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.data_location import Place, ReadPlace
from cli.output import OUTPUT, OutputFormat, write_rows
from cli.plog_command import command, new_app
from cli.terminal import say, show
from core.common.command_option import argument, flag, option
from core.common.errors import UsageError
from core.common.filesystem import accessing
from core.pipeline.produce_request import Acks, Codec, acks_number

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient
    from core.client.write.perf import Measured

app = new_app(
    "Measure how fast a topic is written and read, with the flags of Kafka's perf tools.",
    "plog perf produce perf-test --num-records 100000",
)


TOPIC = argument("The topic to write to; it is created if it does not exist.")
RECORD_SIZE = option("The size of a value.", default=100, metavar="BYTES", min=1)
_MOST_PAYLOADS, _MOST_PAYLOAD_BYTES = 1000, 64 << 20
_AROUND_A_RECORD = 70
"""The least size of a batch beside the value of its only record."""

ACKS = option("Which acknowledgement to wait for.", default="all")
HISTOGRAM = flag("Print a histogram of the latencies on stderr.")


@command(app, "plog perf produce perf-test --num-records 1000000 --record-size 100 --output json")
def produce(
    topic: str = TOPIC,
    num_records: int = option("How many records.", default=100_000, metavar="N", min=1),
    record_size: int = RECORD_SIZE,
    throughput: float = option("At most N records a second; -1 is no limit.", default=-1, metavar="N"),
    payload_file: Path | None = option("Take the lines of this file as values, in turn.", metavar="FILE"),
    warmup_records: int = option("Send this many records first, which are not counted.", default=0, metavar="N", min=0),
    reporting_interval: int = option("How often to report interim figures.", default=5000, metavar="MS", min=100),
    compression: Codec = option("How to compress batches.", default="none"),
    acks: Acks = ACKS,
    batch_size: int = option("The size that a batch may have.", default=131072, metavar="BYTES", min=1),
    histogram: bool = HISTOGRAM,
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Write records at full speed or at a given rate, and measure how long each waits until it is confirmed."""
    import numpy as np

    from core.client.write.perf import measure_produce, random_payload
    from core.client.write.producer import Producer
    from core.records.compression import CompressionType

    if throughput <= 0 and throughput != -1:
        raise UsageError(f"--throughput {throughput:g}: expected a number above 0", hint="-1 sets no limit")
    random = np.random.default_rng(0)
    given = _payloads(payload_file) if payload_file else []
    with place.session().open_client(makes_directory=True) as client:
        partitions = len(client.topic(topic, may_create=True).partitions)
        _ensure_taken(client, topic, max(map(len, given), default=record_size), is_compressed=compression != "none")
        count = min(num_records + warmup_records, _MOST_PAYLOADS, max(_MOST_PAYLOAD_BYTES // record_size, 1))
        payloads = given or [random_payload(record_size, random) for _ in range(count)]
        measured = measure_produce(
            lambda on_acknowledged: Producer(
                client,
                topic,
                acks=acks_number(acks),
                compression=CompressionType.parse(compression),
                batch_bytes=batch_size,
                on_acknowledged=on_acknowledged,
            ),
            partitions,
            payloads,
            records=num_records,
            per_second=throughput if throughput > 0 else None,
            warmup=warmup_records,
            report_seconds=reporting_interval / 1000,
            tell=lambda part: say(_line("sent", part)),
        )
    _print("sent", measured, output, histogram=histogram)


@command(app, "plog perf consume perf-test --messages 1000000")
def consume(
    topic: str = argument("Which topic."),
    num_records: int | None = option(
        "How many records. Default: all.", "--num-records", "--messages", metavar="N", min=1
    ),
    timeout: int = option("Stop when no record has come for this time.", default=1000, metavar="MS", min=0),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Read and decode records from the beginning, and measure how fast that is."""
    from core.client.write.perf import measure_consume

    with place.session().open_client(is_read_only=True) as client:
        measured = measure_consume(client, topic, records=num_records, timeout_s=timeout / 1000)
    if num_records is not None and measured.records < num_records:
        say(f"warning: {measured.records:,} records were found, fewer than {num_records:,}")
    _print("read", measured, output, histogram=False)


@command(app, "plog perf latency perf-test --num-records 1000 --acks all")
def latency(
    topic: str = TOPIC,
    num_records: int = option("How many records.", default=1000, metavar="N", min=1),
    record_size: int = RECORD_SIZE,
    acks: Acks = ACKS,
    histogram: bool = HISTOGRAM,
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Send one record after the other, and measure the time until a consumer has it."""
    from core.client.write.perf import measure_latency
    from core.client.write.producer import Producer

    if acks == "0":
        raise UsageError("--acks 0: there is no acknowledgement to wait for", hint="--acks 1 or all")
    with place.session().open_client(makes_directory=True) as client:
        client.topic(topic, may_create=True)
        _ensure_taken(client, topic, record_size, is_compressed=False)
        measured = measure_latency(
            client,
            topic,
            lambda: Producer(client, topic, acks=acks_number(acks)),
            records=num_records,
            size_bytes=record_size,
        )
    _print("there and back", measured, output, histogram=histogram)


def _ensure_taken(client: KafkaClient, topic: str, size_bytes: int, *, is_compressed: bool) -> None:
    """Raises UsageError for values that the topic refuses, or, compressed, that are larger than all payloads may be;
    before any is created.
    """
    from core.client.admin.admin import Admin
    from core.common.config_def import ConfigResourceType

    configs = Admin(client).find_configs(ConfigResourceType.TOPIC, topic)
    limit = next((int(one.value) for one in configs if one.name == _MAX_BYTES and one.value), _MOST_PAYLOAD_BYTES)
    most = _MOST_PAYLOAD_BYTES if is_compressed else limit - _AROUND_A_RECORD
    if size_bytes > most:
        raise UsageError(
            f"a record of {size_bytes:,} bytes: {topic} takes batches of {limit:,} bytes ({_MAX_BYTES})",
            hint=f"plog topic alter {topic} --set {_MAX_BYTES}={size_bytes + 2 * _AROUND_A_RECORD}, or smaller records",
        )


_MAX_BYTES = "max.message.bytes"


def _payloads(path: Path) -> list[bytes]:
    with accessing(path):
        lines = path.read_bytes().splitlines()
    if not lines:
        raise UsageError(f"--payload-file {path} has no lines")
    return lines


def _line(verb: str, measured: Measured) -> str:
    """Formats the line as Kafka's tools do."""
    row = measured.row()
    text = f"{row['records']:,} records {verb}, {row['records_per_s']:,.1f} records/sec ({row['mb_per_s']:,.2f} MB/sec)"
    if "avg_ms" in row:
        text += f", {row['avg_ms']:.2f} ms avg latency, {row['max_ms']:.2f} ms max latency"
        text += "".join(f", {row[f'p{p}_ms']:.2f} ms {p}th" for p in (50, 95, 99, 99.9))
    return text


def _print(verb: str, measured: Measured, output: OutputFormat, *, histogram: bool) -> None:
    row: dict[str, Any] = measured.row()
    bars = measured.latencies.histogram()
    if output is OutputFormat.table:
        show(_line(verb, measured))
    elif output is OutputFormat.json:
        entries = [{"up_to_ms": bound, "records": count} for bound, count in bars]
        print(json.dumps({**row, **({"histogram": entries} if entries else {})}, indent=2))
    else:
        write_rows([row], list(row), output)
    if histogram and bars:
        largest = max(count for _, count in bars)
        for bound, count in bars:
            say(f"{'<=':>3} {bound:>10.3f} ms {count:>12,} {'#' * max(round(40 * count / largest), 1)}")
