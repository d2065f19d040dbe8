"""`plog serve` that does next to nothing with what is produced: the least that a broker in Python costs here.

    .venv/bin/python -m benchmarks.floor --data-dir DIR --listen 127.0.0.1:0

The first Produce request after a topic was made is answered as ever. Each later one is received, its bytes are
written to one file behind each other, and the first answer goes back with the request's correlation id: no request is
decoded, no batch checked, no offset given, no index kept. What a client produces here can't be fetched.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest import mock

from cli.main import run
from core.broker.request_dispatcher import Answer, RequestDispatcher
from core.protocol.frame import read_request_start
from core.protocol.schema.produce import PRODUCE

_ENVELOPE_BYTES = 100
"""About what a Produce request has before its batch."""


def main(arguments: list[str]) -> int:
    data_dir = Path(arguments[arguments.index("--data-dir") + 1])
    data_dir.mkdir(parents=True, exist_ok=True)
    fd = os.open(data_dir / "floor", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    first_answers: dict[tuple[int, int], bytes] = {}
    handle = RequestDispatcher.handle

    def handle_least(self: RequestDispatcher, frame: memoryview, local_host: str = "", client_host: str = "") -> Answer:
        key, version, correlation_id = read_request_start(frame)
        if key != PRODUCE.key:
            return handle(self, frame, local_host, client_host)
        asked = version, len(self._broker.image.topics)
        first = first_answers.get(asked)
        if first is None:
            pieces = handle(self, frame, local_host, client_host)
            assert isinstance(pieces, list)
            first_answers[asked] = b"".join(pieces)  # type: ignore[arg-type]  # no answer to Produce has a region
            return pieces
        os.write(fd, frame[_ENVELOPE_BYTES:])
        return [first[:4] + correlation_id.to_bytes(4) + first[8:]]

    with mock.patch.object(RequestDispatcher, "handle", handle_least):
        return run(["serve", *arguments])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
