"""What TLS costs plog's client: CPU seconds of `plog perf` against Apache Kafka, plaintext and secured in turns.

    .venv/bin/python -m benchmarks.secured_client [--rounds 7] [--records 200000]

Records of 1,000 bytes in batches of 128 KB; each run is a process of its own, its start included. "TLS, ssl.SSLSocket"
is the same client with the standard library's socket in the place of `TlsSocket`: a loop of `recv_into`, as little as a
client in Python does with TLS. The floor is that loop alone, of as many bytes, from OpenSSL to OpenSSL.
"""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.peers import KAFKA_JAVA_OPTIONS
from tests.support.certificates import make_ca, sign
from tests.support.secured_door import server_context
from tests.support.secured_kafka import SecuredKafka

_ROUNDS = 7
_RECORD_BYTES = 1000
_ANSWER_BYTES = 1 << 20
_KAFKAS_RECORD_BYTES = 8 << 10  # of TLS: Kafka's fetch answers come in records of this size
_PLOG = "from plog.__main__ import main; main()"
_WITH_SSL_SOCKET = (
    "import core.client.tls_socket as tls\n"
    "tls.TlsSocket = lambda plain, peer, context: context.wrap_socket(plain, server_hostname=peer.host)\n" + _PLOG
)


def cpu_seconds(program: str, *arguments: str) -> float:
    """Of plog; its byte code is kept from run to run, as that of an installed one is."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as talk:
        command = [sys.executable, "-c", program, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=talk, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        talk.seek(0)
        assert status == 0, talk.read().decode()
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--records", type=int, default=200_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kafka = SecuredKafka(Path(folder), KAFKA_JAVA_OPTIONS)
        kafka.start()
        try:
            measure(kafka, options.rounds, options.records)
        finally:
            kafka.stop()


def measure(kafka: SecuredKafka, rounds: int, records: int) -> None:
    plaintext = kafka.folder / "plaintext.properties"
    plaintext.write_text(f"bootstrap.servers={kafka.server.address}\n")
    tls, scram = kafka.write("TLS"), kafka.write("SCRAM-SHA-512")
    ways = {
        "plaintext": (plaintext, _PLOG),
        "TLS": (tls, _PLOG),
        "TLS, ssl.SSLSocket": (tls, _WITH_SSL_SOCKET),
        "SCRAM over TLS": (scram, _PLOG),
    }
    size = ("--num-records", str(records), "--record-size", str(_RECORD_BYTES))
    found: dict[tuple[str, str], list[float]] = {}
    for number in range(-2, rounds):  # two for Java's compiler are not counted
        for way, (config, program) in ways.items():
            secured = ("--command-config", str(config))
            produce = cpu_seconds(program, "perf", "produce", "t", *size, *secured)
            consume = cpu_seconds(program, "perf", "consume", "t", "--messages", str(records), *secured)
            if number >= 0:
                found.setdefault(("produce", way), []).append(produce)
                found.setdefault(("consume", way), []).append(consume)
        if number >= 0:
            found.setdefault(("read", "the floor"), []).append(floor_seconds(records * _RECORD_BYTES))
    for (what, way), seconds in sorted(found.items()):
        median = statistics.median(seconds)
        ratios = [one / other for one, other in zip(seconds, found.get((what, "plaintext"), seconds), strict=True)]
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        print(f"{what} {way:18} {median:6.3f} ({min(seconds):.3f}-{max(seconds):.3f}) s  {ratio}")


def floor_seconds(size_bytes: int) -> float:
    """CPU of this thread for a bare loop of `SSLSocket.recv_into`, less that of the same loop without TLS."""
    with tempfile.TemporaryDirectory() as folder:
        ca = make_ca()
        server = server_context(*map(str, sign(ca).write(Path(folder), "server")))
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=ca.pem)
    return _read(size_bytes, server, client) - _read(size_bytes, None, None)


def _read(size_bytes: int, server: ssl.SSLContext | None, client: ssl.SSLContext | None) -> float:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def send() -> None:
            plain, _ = listener.accept()
            with server.wrap_socket(plain, server_side=True) if server else plain as peer:
                piece = bytes(_KAFKAS_RECORD_BYTES)
                for _ in range(0, size_bytes, len(piece)):
                    peer.sendall(piece)

        sender = threading.Thread(target=send)
        sender.start()
        plain = socket.create_connection(listener.getsockname())
        with client.wrap_socket(plain, server_hostname="localhost") if client else plain as connection:
            buffer = memoryview(bytearray(_ANSWER_BYTES))
            started_s, received = time.thread_time(), 0
            while received < size_bytes:
                received += connection.recv_into(buffer[received % _ANSWER_BYTES :])
            seconds = time.thread_time() - started_s
        sender.join()
    return seconds


if __name__ == "__main__":
    main()
