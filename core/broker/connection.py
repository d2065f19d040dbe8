"""One client's connection: frames in, answers out, in the order of the requests.

Raw non-blocking sockets under the event loop. Bytes are received into a buffer that all connections share; only a frame
that is not complete gets one of its own, which grows with what arrives, never with what is claimed. Answers go out as
they are: bytes by sendmsg, file regions by sendfile.

While an answer waits (a long poll) or the client reads slower than it asks, its further requests are set aside and,
when there are some, reading stops: a client can't make the broker grow.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable

from core.broker.handlers.produce import UnacknowledgedError
from core.broker.request_dispatcher import PendingAnswer, RequestDispatcher
from core.common.errors import MalformedMessageError
from core.log.file_records import FileRegion
from core.protocol.frame import SIZE
from core.protocol.primitives import Piece

_log = logging.getLogger("plog.connection")

SHARED_BUFFER_BYTES = 256 * 1024
_FIRST_OWN_BUFFER_BYTES = 64 * 1024
_MAX_QUEUED_BYTES = 1024 * 1024
_MAX_IOV = 64


class Connection:
    """Owned by the loop's task. `on_close` is told when it is over."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        dispatcher: RequestDispatcher,
        shared_buffer: memoryview,
        max_request_bytes: int,
        on_close: Callable[[Connection], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._dispatcher = dispatcher
        self._shared = shared_buffer
        self._max_request_bytes = max_request_bytes
        self._on_close = on_close
        self._local_host: str = sock.getsockname()[0]
        self._peer = _peer_text(sock)
        self._partial: bytearray | None = None  # a frame of which more is to come, from its size on
        self._received = 0  # bytes of it that are there
        self._aside = bytearray()  # what was received behind a request whose answer waits
        self._out: deque[Piece] = deque()
        self._pending: PendingAnswer | None = None
        self._is_reading = False
        self._is_writing = False
        self._is_closed = False
        self.last_active_s = loop.time()
        self._read()

    # --- in

    def _read(self) -> None:
        if not self._is_reading and not self._is_closed:
            self._loop.add_reader(self._fd, self._on_readable)
            self._is_reading = True

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._loop.remove_reader(self._fd)
            self._is_reading = False

    def _on_readable(self) -> None:
        try:
            if self._partial is None:
                received = self._socket.recv_into(self._shared)
            else:
                with memoryview(self._partial) as view:
                    received = self._socket.recv_into(view[self._received :])
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if received == 0:
            self.close()
            return
        self.last_active_s = self._loop.time()
        try:
            self._on_received(received)
        except MalformedMessageError as error:
            _log.warning("closing the connection of %s: %s", self._peer, error)
            self.close()
        except UnacknowledgedError:
            self.close()
        except Exception:  # noqa: BLE001 - the door of a connection's loop
            _log.exception("closing the connection of %s after an unexpected error", self._peer)
            self.close()

    def _on_received(self, received: int) -> None:
        if self._partial is None:
            self._feed(self._shared[:received])
        else:
            self._received += received
            self._grow_or_handle()
        self._flush()

    def _feed(self, data: memoryview) -> None:
        """Handles every whole frame; what is left over is kept."""
        start = 0
        while start < len(data):
            if self._must_wait():
                self._aside = bytearray(data[start:])
                self._stop_reading()
                return
            left = len(data) - start
            size = self._frame_size(data[start:]) if left >= SIZE.size else SIZE.size
            if left < SIZE.size or left < SIZE.size + size:
                self._keep_partial(data[start:])
                return
            start += SIZE.size
            self._handle(data[start : start + size])
            start += size

    def _frame_size(self, data: memoryview | bytearray) -> int:
        (size,) = SIZE.unpack_from(data)
        if not 0 <= size <= self._max_request_bytes:
            raise MalformedMessageError(
                f"request of {size} bytes, socket.request.max.bytes is {self._max_request_bytes}"
            )
        return int(size)

    def _keep_partial(self, data: memoryview) -> None:
        self._partial = bytearray(max(_FIRST_OWN_BUFFER_BYTES, len(data)))
        self._partial[: len(data)] = data
        self._received = len(data)
        self._grow_or_handle()

    def _grow_or_handle(self) -> None:
        """Handles the frames in the connection's own buffer, or makes room for more of the one that is not complete."""
        partial = self._partial
        assert partial is not None
        needed = SIZE.size
        if self._received >= SIZE.size:
            needed += self._frame_size(partial)
        if self._received >= needed:
            self._partial = None
            self._feed(memoryview(partial)[: self._received])
        elif self._received == len(partial):
            # By doubling, but never beyond the frame: the socket must not deliver what comes behind it.
            self._partial = partial + bytes(min(len(partial), needed - len(partial)))

    def _must_wait(self) -> bool:
        return self._pending is not None or self._queued_bytes() > _MAX_QUEUED_BYTES

    def _queued_bytes(self) -> int:
        return sum(map(len, self._out)) if self._out else 0

    def _handle(self, frame: memoryview) -> None:
        answer = self._dispatcher.handle(frame, self._local_host)
        if isinstance(answer, PendingAnswer):
            self._pending = answer
            answer.on_ready = self._on_ready
        elif answer is not None:
            self._out.extend(answer)

    def _on_ready(self, pieces: list[Piece]) -> None:
        """The answer that was waited for is there; requests behind it have their turn."""
        self._pending = None
        if self._is_closed:
            return
        self._out.extend(pieces)
        self._resume()

    def _resume(self) -> None:
        try:
            aside, self._aside = self._aside, bytearray()
            if aside:
                self._feed(memoryview(aside))
            self._flush()
        except MalformedMessageError as error:
            _log.warning("closing the connection of %s: %s", self._peer, error)
            self.close()
            return
        except UnacknowledgedError:
            self.close()
            return
        if not self._aside:
            self._read()

    # --- out

    def _flush(self) -> None:
        """Sends what can be sent now; the rest when the socket takes more."""
        if self._is_closed:
            return
        try:
            while self._out:
                if isinstance(self._out[0], FileRegion):
                    self._send_region(self._out[0])
                else:
                    self._send_bytes()
        except BlockingIOError:
            if not self._is_writing:
                self._loop.add_writer(self._fd, self._on_writable)
                self._is_writing = True
            return
        except OSError:
            self.close()
            return
        if self._is_writing:
            self._loop.remove_writer(self._fd)
            self._is_writing = False

    def _on_writable(self) -> None:
        self.last_active_s = self._loop.time()
        self._flush()
        if self._aside and not self._must_wait():
            self._resume()

    def _send_region(self, region: FileRegion) -> None:
        sent = os.sendfile(self._fd, region.file.fd, region.position, region.size_bytes)
        if sent == 0:
            raise ConnectionError("the file was cut under an answer")
        self._out.popleft()
        if sent < region.size_bytes:
            self._out.appendleft(FileRegion(region.file, region.position + sent, region.size_bytes - sent))

    def _send_bytes(self) -> None:
        run: list[bytes | bytearray | memoryview] = []
        for piece in self._out:
            if len(run) == _MAX_IOV or not isinstance(piece, bytes | bytearray | memoryview):
                break
            run.append(piece)
        more = socket.MSG_MORE if len(self._out) > len(run) else 0
        sent = self._socket.sendmsg(run, (), more)
        for piece in run:
            self._out.popleft()
            if sent < len(piece):
                self._out.appendleft(memoryview(piece)[sent:])
                return
            sent -= len(piece)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._stop_reading()
        if self._is_writing:
            self._loop.remove_writer(self._fd)
        if self._pending is not None:
            self._pending.cancel()
        self._out.clear()
        self._socket.close()
        self._on_close(self)


def _peer_text(sock: socket.socket) -> str:
    try:
        name = sock.getpeername()
    except OSError:
        return "a client that is gone"
    return f"{name[0]}:{name[1]}"
