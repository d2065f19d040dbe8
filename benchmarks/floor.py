"""`plog serve` that does next to nothing with what is produced: the least that a broker in Python costs here.

    .venv/bin/python -m benchmarks.floor --data-dir DIR --listen 127.0.0.1:0    (as `plog serve`)

The first Produce request after a topic was made is answered as ever. Each later one is received, its bytes are
written to one file behind each other, and the first answer goes back with the request's correlation id: no request is
decoded, no batch checked, no offset given, no index kept. What a client produces here can't be fetched.
"""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

from benchmarks.options import option_parser
from cli.main import run
from core.broker.requests.client_session import Session
from core.broker.requests.request_dispatcher import Answer, RequestDispatcher
from core.protocol.frame import read_request_start
from core.protocol.schema.produce import PRODUCE

_ENVELOPE_BYTES = 100
"""About what a Produce request has before its batch."""


def main() -> int:
    parser = option_parser(__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    options, others = parser.parse_known_args()
    options.data_dir.mkdir(parents=True, exist_ok=True)
    fd = os.open(options.data_dir / "floor", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    first_answers: dict[tuple[int, int], bytes] = {}
    handle = RequestDispatcher.handle

    def handle_least(self: RequestDispatcher, frame: memoryview, session: Session | None = None) -> Answer:
        key, version, correlation_id = read_request_start(frame)
        if key != PRODUCE.key:
            return handle(self, frame, session)
        asked = version, len(self._services.image.topics)
        first = first_answers.get(asked)
        if first is None:
            pieces = handle(self, frame, session)
            assert isinstance(pieces, list)
            first_answers[asked] = b"".join(pieces)  # type: ignore[arg-type]  # no answer to Produce has a region
            return pieces
        os.write(fd, frame[_ENVELOPE_BYTES:])
        return [first[:4] + correlation_id.to_bytes(4) + first[8:]]

    with mock.patch.object(RequestDispatcher, "handle", handle_least):
        return run(["serve", "--data-dir", str(options.data_dir), *others])


if __name__ == "__main__":
    raise SystemExit(main())
