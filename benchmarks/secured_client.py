"""What TLS costs plog's client: CPU seconds of `plog perf` against Apache Kafka, plaintext and secured in turns.

    .venv/bin/python -m benchmarks.secured_client [--rounds 7] [--warm-up 2] [--records 200000]

Records of 1,000 bytes in batches of 128 KB; each run is a process of its own, its start included. The floor is a loop
of `recv_into`, as little as a client in Python does with TLS, of as many bytes, from OpenSSL to OpenSSL.
"""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

from benchmarks.figures import quotients, spread
from benchmarks.options import ensure_kafka, option_parser
from benchmarks.peers import KAFKA_JAVA_OPTIONS, environment_of, scratch_folder
from tests.support.certificates import make_ca, sign
from tests.support.secured_door import server_context
from tests.support.secured_kafka import SecuredKafka

_RECORD_BYTES = 1000
_ANSWER_BYTES = 1 << 20
_KAFKAS_RECORD_BYTES = 8 << 10  # of TLS: Kafka's fetch answers come in records of this size
_PLOG = "from plog.__main__ import main; main()"


def cpu_seconds(*arguments: str) -> float:
    with tempfile.TemporaryFile() as talk:
        command = [sys.executable, "-c", _PLOG, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=talk, env=environment_of())
        _, status, usage = os.wait4(process.pid, 0)
        talk.seek(0)
        assert status == 0, talk.read().decode()
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    options = option_parser(__doc__, rounds=7, warm_up=2, records=200_000).parse_args()
    ensure_kafka()
    with scratch_folder() as folder:
        kafka = SecuredKafka(folder, KAFKA_JAVA_OPTIONS)
        kafka.start()
        try:
            measure(kafka, options.rounds, options.warm_up, options.records)
        finally:
            kafka.stop()


def measure(kafka: SecuredKafka, rounds: int, warm_up: int, records: int) -> None:
    plaintext = kafka.folder / "plaintext.properties"
    plaintext.write_text(f"bootstrap.servers={kafka.server.address}\n")
    tls, scram = kafka.write("TLS"), kafka.write("SCRAM-SHA-512")
    ways = {
        "plaintext": plaintext,
        "TLS": tls,
        "SCRAM over TLS": scram,
    }
    size = ("--num-records", str(records), "--record-size", str(_RECORD_BYTES))
    found: dict[tuple[str, str], list[float]] = {}
    for number in range(-warm_up, rounds):  # those for Java's compiler are not counted
        for way, config in ways.items():
            secured = ("--command-config", str(config))
            produce = cpu_seconds("perf", "produce", "t", *size, *secured)
            consume = cpu_seconds("perf", "consume", "t", "--messages", str(records), *secured)
            if number >= 0:
                found.setdefault(("produce", way), []).append(produce)
                found.setdefault(("consume", way), []).append(consume)
        if number >= 0:
            found.setdefault(("read", "the floor"), []).append(floor_seconds(records * _RECORD_BYTES))
    for (what, way), seconds in sorted(found.items()):
        ratios = quotients(seconds, found.get((what, "plaintext"), seconds))
        print(f"{what} {way:18} {spread(seconds, '.3f', 's')}  {spread(ratios, '.2f')}")


def floor_seconds(size_bytes: int) -> float:
    """CPU of this thread for a bare loop of `SSLSocket.recv_into`, less that of the same loop without TLS."""
    with scratch_folder() as folder:
        ca = make_ca()
        server = server_context(*map(str, sign(ca).write(folder, "server")))
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
