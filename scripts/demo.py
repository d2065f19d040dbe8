"""plog's main job, end to end, on real data: 27,004 departures from New York in January 2013.

A broker that real Kafka clients talk to, files that explain themselves, damage that is found, a Spark replay of what
was stored. Every step checks what it did; the exit code is 0 only if each of them checked out.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "sample-data" / "flights-2013-01.ndjson.gz"
PLOG = Path(sys.executable).with_name("plog")
TOPIC = "flights"
PARTITIONS = 4
WIDTH = 130
FLIGHTS = 27_004
WITHOUT_TAILNUM = 155
ONE_DAY = ("2013-01-15T00:00:00Z", "2013-01-16T00:00:00Z")

Record = tuple[bytes | None, int, bytes | None]
"""(key, timestamp in ms, value)."""

console = Console(highlight=False)


class StepFailedError(Exception):
    """A step's result is not what it must be."""


def ensure(condition: bool, message: str) -> None:  # noqa: FBT001 - reads like an assert, and is never switched off
    if not condition:
        raise StepFailedError(message)


class Demo:
    """The steps, in order, with what they took."""

    def __init__(self, output: Path) -> None:
        self.data_dir = output / "data"
        self.damaged = output / "damaged-copy"
        self.parquet = output / "parquet"
        self.address = ""
        self.timings: list[tuple[str, float, str]] = []
        self.expected: Counter[Record] = Counter()

    def run(self) -> None:
        with self.step("read the input") as done:
            self.expected = read_input()
            done(f"{FLIGHTS:,} departures, {WITHOUT_TAILNUM} without a tail number")
        with self.serving():
            self.create_topic()
            self.produce()
            self.consume()
            self.consume_with_librdkafka()
            with self.step("stop the broker") as done:
                self.stop_server()
                done("cleanly")
        self.dump()
        self.verify()
        self.consume_one_day()
        self.find_damage()
        self.replay()

    @contextmanager
    def step(self, what: str) -> Iterator[Callable[[str], None]]:
        results = [""]
        started = time.monotonic()
        with console.status(f"{what} ..."):
            yield lambda result: results.__setitem__(0, result)
        elapsed = time.monotonic() - started
        self.timings.append((what, elapsed, results[0]))
        console.print(f"[green]ok[/]  {what}: {escape(results[0])}  [dim]{elapsed:.2f} s[/]", soft_wrap=True)

    def plog(self, *arguments: str, stdin: int | None = None, expect: int = 0) -> bytes:
        """Runs a command of plog's, shows it, and gives what it printed."""
        console.print(f"    [bold cyan]$ plog {' '.join(arguments)}[/]", soft_wrap=True)
        done = subprocess.run([PLOG, *arguments], stdin=stdin, capture_output=True, check=False)
        message = done.stderr.decode(errors="replace").strip()
        ensure(done.returncode == expect, f"plog {arguments[0]} exited with {done.returncode}: {message}")
        for line in message.splitlines():
            console.print(f"    [dim]{escape(line)}[/]", soft_wrap=True)
        return done.stdout

    # --- the broker

    @contextmanager
    def serving(self) -> Iterator[None]:
        ready = self.data_dir.with_name("ready")
        arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(self.data_dir), "--ready-file", str(ready)]
        with self.step("start the broker") as done:
            log = self.data_dir.with_name("server.log").open("wb")
            console.print(f"    [bold cyan]$ plog {' '.join(arguments)} &[/]", soft_wrap=True)
            self.server = subprocess.Popen([PLOG, *arguments], stdout=log, stderr=log)
            deadline = time.monotonic() + 120
            while not ready.exists():
                ensure(self.server.poll() is None, f"the broker stopped; see {log.name}")
                ensure(time.monotonic() < deadline, "the broker did not get ready in 120 s")
                time.sleep(0.02)
            self.address = ready.read_text().strip()
            done(f"listening on {self.address}")
        try:
            yield
        finally:
            self.stop_server()

    def stop_server(self) -> None:
        if self.server.poll() is None:
            self.server.send_signal(signal.SIGTERM)
            ensure(self.server.wait(30) == 0, f"the broker exited with {self.server.returncode}")

    def create_topic(self) -> None:
        with self.step("create the topic") as done:
            settings = ["--partitions", str(PARTITIONS), "--set", "retention.ms=-1"]
            self.plog("topic", "create", TOPIC, *settings, "--bootstrap-server", self.address)
            done(f"{TOPIC}, {PARTITIONS} partitions, records kept for ever: they are of 2013")

    def produce(self) -> None:
        with self.step("produce") as done:
            fields = ["--key-field", "tailnum", "--timestamp-field", "time", "--compression", "zstd"]
            with subprocess.Popen(["gzip", "-dc", SAMPLE], stdout=subprocess.PIPE) as unzip:
                assert unzip.stdout is not None
                self.plog("produce", TOPIC, *fields, "--bootstrap-server", self.address, stdin=unzip.stdout.fileno())
            done(f"{FLIGHTS:,} records, keyed by tail number")

    def consume(self) -> None:
        with self.step("consume with plog") as done:
            lines = self.plog("consume", TOPIC, "--format", "envelope", "--bootstrap-server", self.address)
            found: Counter[Record] = Counter()
            for line in lines.splitlines():
                fields = json.loads(line)
                key = None if fields["key"] is None else fields["key"].encode()
                found[key, fields["timestamp"], fields["value"].encode()] += 1
            self.ensure_complete(found)
            done("every key, timestamp and value as it went in")

    def consume_with_librdkafka(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        with self.step("consume with confluent-kafka") as done:
            consumer = Consumer(
                {"bootstrap.servers": self.address, "group.id": "demo", "enable.auto.commit": False,
                 "enable.partition.eof": True}
            )  # fmt: skip
            consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
            found: Counter[Record] = Counter()
            ended = 0
            deadline = time.monotonic() + 180
            while ended < PARTITIONS and time.monotonic() < deadline:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    found[message.key(), message.timestamp()[1], message.value()] += 1
                else:
                    ensure(error.name() == "_PARTITION_EOF", str(error))
                    ended += 1
            consumer.close()
            self.ensure_complete(found)
            done("the same, through librdkafka")

    def ensure_complete(self, found: Counter[Record]) -> None:
        missing, extra = self.expected - found, found - self.expected
        ensure(
            not missing and not extra, f"{missing.total()} records are missing, {extra.total()} are not of the input"
        )

    # --- the files

    def dump(self) -> None:
        with self.step("look into a segment") as done:
            first, *_ = segments = sorted((self.data_dir / f"{TOPIC}-0").glob("*.log"))
            text = self.plog("dump-segment", str(first), "--print-data-log", "--max-records", "2").decode()
            ensure("isvalid: true" in text and "\n| offset: 0 " in text, "the dump does not show the first record")
            show(text)
            # A segment of one batch has an index without entries.
            longest = max((segment.with_suffix(".index") for segment in segments), key=lambda path: path.stat().st_size)
            index = self.plog("dump-segment", str(longest)).decode()
            ensure("position:" in index, "the index holds no entries")
            show("\n".join(index.splitlines()[:4]))
            done("batches, records and index entries")

    def verify(self) -> None:
        with self.step("verify the data directory") as done:
            self.plog("verify", str(self.data_dir))
            done("every checksum and index entry holds")

    def consume_one_day(self) -> None:
        with self.step("consume one day, with no server") as done:
            start, end = ONE_DAY
            where = ["--from", start, "--until", end, "--data-dir", str(self.data_dir)]
            lines = self.plog("consume", TOPIC, *where).splitlines()
            day = [json.loads(line) for line in lines]
            wanted = sum(
                count
                for (_, _, value), count in self.expected.items()
                if start <= json.loads(value or b"")["time"] < end
            )
            ensure(len(day) == wanted, f"{len(day)} departures, expected {wanted}")
            ensure(all(start <= flight["time"] < end for flight in day), "a departure is of another day")
            done(f"{len(day)} departures of {start[:10]}, straight from the files")

    def find_damage(self) -> None:
        with self.step("find a flipped byte") as done:
            shutil.copytree(self.data_dir, self.damaged)
            segment = sorted((self.damaged / f"{TOPIC}-2").glob("*.log"))[0]
            data = bytearray(segment.read_bytes())
            data[len(data) // 2] ^= 0xFF
            segment.write_bytes(data)
            found = [
                json.loads(line)
                for line in self.plog("verify", str(self.damaged), "--output", "ndjson", expect=1).splitlines()
            ]
            ensure(len(found) == 1 and found[0]["path"] == str(segment), f"plog verify found {found}")
            ensure(found[0]["position"] <= len(data) // 2 and found[0]["offset"] >= 0, f"plog verify found {found}")
            done(f"{segment.name}, position {found[0]['position']}, offset {found[0]['offset']}: {found[0]['code']}")

    def replay(self) -> None:
        with self.step("replay to Parquet with Spark") as done:
            self.plog("spark-replay", TOPIC, "--to", f"parquet:{self.parquet}", "--data-dir", str(self.data_dir))
            import pyarrow.parquet as pq

            rows = pq.read_table(self.parquet, columns=["partition", "offset"])
            pairs = set(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
            ensure(
                rows.num_rows == FLIGHTS and len(pairs) == FLIGHTS,
                f"{rows.num_rows} rows, {len(pairs)} of them distinct",
            )
            done(f"{rows.num_rows:,} rows, each offset once")

    def summarise(self) -> None:
        table = Table(title="plog, end to end", title_justify="left")
        for column, justify in (("step", "left"), ("seconds", "right"), ("result", "left")):
            table.add_column(column, justify=justify)  # type: ignore[arg-type]
        for what, elapsed, result in self.timings:
            table.add_row(what, f"{elapsed:.2f}", result)
        console.print(table)
        console.print(
            f"The log:     {self.data_dir}\nThe damaged: {self.damaged}\nParquet:     {self.parquet}\n\nTry next:"
        )
        plog = os.path.relpath(PLOG)
        for command in (
            f"{plog} serve --data-dir {self.data_dir}",
            f"{plog} consume {TOPIC} --data-dir {self.data_dir} --from -3",
            f"{plog} topic describe {TOPIC} --data-dir {self.data_dir}",
            f"{plog} dump-segment {self.data_dir}/{TOPIC}-1 --print-data-log | less",
            f"{plog} verify {self.damaged}",
            f"{plog} --help",
        ):
            console.print(f"  {command}", markup=False, soft_wrap=True)


def read_input() -> Counter[Record]:
    """What must come out: the exact bytes of every line, its tail number and its time."""
    from datetime import UTC, datetime

    records: Counter[Record] = Counter()
    with gzip.open(SAMPLE, "rb") as lines:
        for line in lines:
            value = line.rstrip(b"\n")
            fields = json.loads(value)
            moment = datetime.strptime(fields["time"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
            key = None if fields["tailnum"] is None else fields["tailnum"].encode()
            records[key, int(moment.timestamp() * 1000), value] += 1
    ensure(records.total() == FLIGHTS, f"the sample holds {records.total()} lines, expected {FLIGHTS}")
    without = sum(count for (key, _, _), count in records.items() if key is None)
    ensure(without == WITHOUT_TAILNUM, f"{without} lines have no tail number, expected {WITHOUT_TAILNUM}")
    return records


def show(text: str) -> None:
    for line in text.splitlines():
        shown = escape(line if len(line) <= WIDTH else line[:WIDTH] + " ...")
        console.print(f"    [dim]{shown}[/]", soft_wrap=True)


def main() -> int:
    output = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output")
    if output.exists():
        if any(output.iterdir()) and not (output / "data" / "meta.properties").exists():
            console.print(f"[red]error[/]: {output} is not empty and not of an earlier demo; name another folder")
            return 2
        shutil.rmtree(output)
    output.mkdir(parents=True)
    demo = Demo(output)
    try:
        demo.run()
    except StepFailedError as error:
        console.print(f"[red]failed[/]: {escape(str(error))}", soft_wrap=True)
        return 1
    demo.summarise()
    return 0


if __name__ == "__main__":
    sys.exit(main())
