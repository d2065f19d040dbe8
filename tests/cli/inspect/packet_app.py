"""Stands in for an app on Textual's web driver: it writes packets, and does what it is told by what is typed."""

from __future__ import annotations

import json
import os
import signal
import sys


def send(kind: bytes, payload: bytes) -> None:
    data = kind + len(payload).to_bytes(4, "big") + payload
    while data:
        data = data[os.write(1, data) :]


def read(size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            sys.exit(0)
        data += more
    return data


def obey(word: str) -> None:
    match word.partition(" "):
        case "draw", _, text:
            send(b"D", text.encode())
        case "tell", _, text:
            send(b"M", text.encode())
        case "pack", _, text:
            send(b"P", text.encode())
        case "garbage", _, text:
            os.write(1, text.encode())
        case "complain", _, text:
            sys.stderr.write(text)
            sys.exit(3)
        case "flood", _, _:
            while True:
                send(b"D", b"x" * 100_000)
        case "stay", _, _:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            send(b"D", b"staying")
            while True:
                signal.pause()


def main() -> None:
    os.write(1, b"__GANGLION__\n")
    names = ("COLUMNS", "ROWS", "TERM", "TEXTUAL_DRIVER")
    greeting = {"pid": os.getpid(), "arguments": sys.argv[1:]} | {name: os.environ.get(name) for name in names}
    send(b"D", json.dumps(greeting).encode())
    while True:
        kind = read(1)
        text = read(int.from_bytes(read(4), "big")).decode()
        if kind == b"D":
            obey(text)
        else:
            send(b"D", text.encode())


main()
