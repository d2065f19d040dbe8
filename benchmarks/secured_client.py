"""What TLS costs plog's client: CPU seconds of `plog perf` against Apache Kafka, plaintext and secured in turns.

    .venv/bin/python -m benchmarks.secured_client [--rounds 5] [--records 200000]

Records of 1,000 bytes in batches of 128 KB; each run is a process of its own, its start included.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from tests.support.secured_kafka import SecuredKafka
from tests.support.server import PLOG


def cpu_seconds(*arguments: str) -> float:
    with tempfile.TemporaryFile() as talk:
        process = subprocess.Popen([PLOG, *arguments], stdout=subprocess.DEVNULL, stderr=talk)
        _, status, usage = os.wait4(process.pid, 0)
        talk.seek(0)
        assert status == 0, talk.read().decode()
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=200_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kafka = SecuredKafka(Path(folder))
        kafka.start()
        try:
            measure(kafka, options.rounds, str(options.records))
        finally:
            kafka.stop()


def measure(kafka: SecuredKafka, rounds: int, records: str) -> None:
    plaintext = kafka.folder / "plaintext.properties"
    plaintext.write_text(f"bootstrap.servers={kafka.server.address}\n")
    ways = {"plaintext": plaintext, "TLS": kafka.write("TLS"), "SCRAM over TLS": kafka.write("SCRAM-SHA-512")}
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for way, config in ways.items():
            secured = ("--command-config", str(config))
            size = ("--num-records", records, "--record-size", "1000")
            found.setdefault(("produce", way), []).append(cpu_seconds("perf", "produce", "t", *size, *secured))
            found.setdefault(("consume", way), []).append(
                cpu_seconds("perf", "consume", "t", "--messages", records, *secured)
            )
    for (what, way), seconds in sorted(found.items()):
        ratio = statistics.median(seconds) / statistics.median(found[what, "plaintext"])
        print(
            f"{what} {way:15} {statistics.median(seconds):6.2f} s  {ratio:.2f}  {min(seconds):.2f}..{max(seconds):.2f}"
        )


if __name__ == "__main__":
    main()
