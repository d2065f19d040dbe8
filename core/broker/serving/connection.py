"""One client's connection: frames in, answers out, in the order of the requests.

Raw non-blocking sockets under the event loop. Bytes are received into a buffer that all connections share. A connection
with an incomplete frame gets a buffer of its own: the shared one, if much of the frame came and the rest has room after
it, else another (a short beginning goes back to the shared one when more comes, so that many frames come at once), from
a small pool or growing with the bytes that arrive, never with a claimed size, and only as far as memory allows
(core.broker.serving.connections_memory). Answers go out as they are: bytes by send, file regions by sendfile.

While an answer waits (a long poll) or the client reads slower than it asks, its further requests are set aside, and
reading stops when more arrives than was received at once: a client can't make the broker grow. Requests are also set
aside when the connection's turn is over, until its next one (core.broker.requests.fair_scheduler).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from pathlib import Path
from time import monotonic  # noqa: TID251  how long a turn takes

from core.broker.requests.client_session import Session
from core.broker.requests.fair_scheduler import TURN_SECONDS, FairScheduler
from core.broker.requests.handlers.produce import UnacknowledgedError
from core.broker.serving.connections_memory import LARGE_BYTES, ConnectionsMemory
from core.broker.serving.receive_buffers import SHARED_BUFFER_BYTES, ReceiveBuffers, buffer_size, new_buffer
from core.broker.serving.sasl_authenticator import FrameHandler
from core.broker.serving.tls_transport import TlsTransport, find_speech
from core.cluster.image.cluster_member_metadata import NotInformedError
from core.common.errors import MalformedMessageError
from core.common.pending import Pending
from core.files.file_records import FileRegion
from core.protocol.frame import SIZE
from core.protocol.primitives import Piece

_log = logging.getLogger("plog.connection")

_MOST_MOVED_BYTES = 16 * 1024
_FRUGAL_BYTES = 16 * 1024  # the most read at once while memory is short
_MOST_RECEIVED_BYTES = 1024 * 1024
"""The most bytes received at once: more would delay other connections."""
_MAX_IOV = 64
_MSG_MORE: int = getattr(socket, "MSG_MORE", 0)  # Linux's own
_TURN_BYTES = 256 * 1024
"""The bytes of files sent in one turn: a client that reads fast does not delay others for longer."""


class Connection:
    """Owned by the loop's task. `on_close` is called at its end, and also `on_unreadable` if the disk refuses a file
    that is being sent. `greet` is called before the first request: it calls `admit`. `listener` is
    what the log calls the listener.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket | TlsTransport,
        buffers: ReceiveBuffers,
        turns: FairScheduler,
        memory: ConnectionsMemory,
        max_request_bytes: int,
        on_close: Callable[[Connection], None],
        on_unreadable: Callable[[Path, OSError], None],
        *,
        greet: Callable[[Connection], None],
        listener: str,
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._handler: FrameHandler | None = None  # of its frames, and None until it was greeted
        self._session: Session | None = None
        self._buffers = buffers
        self._turns = turns
        self._memory = memory
        self._max_request_bytes = max_request_bytes
        self._on_close = on_close
        self._on_unreadable = on_unreadable
        self.client_host, self._peer = _peer(sock)
        self.local_host: str = sock.getsockname()[0]
        self._greet = greet
        self._listener = listener
        self.is_authenticated = False
        """Whether the client is known, as far as the listener asks."""
        self._partial: memoryview | None = None  # its own buffer, with an incomplete frame
        self._start = 0  # of the frame in it, from its size on
        self._end = 0  # of the frame's received bytes
        self._room = 0  # bytes that are counted for that buffer
        self._next_size = self._next_room = 0  # the buffer that it waits for
        self._waits_for_room = False
        self._aside = memoryview(b"")  # requests that were received, and are not handled yet
        self._out: deque[Piece] = deque()
        self._out_bytes = 0
        self._out_file_bytes = 0  # those of them in files
        self._held = 0  # bytes reported to the memory
        self._pending: Pending[list[Piece]] | None = None
        self._at_work_bytes = 0  # of its request, if that takes turns
        self._lent: memoryview | None = None  # the buffer of a large one
        self._is_reading = False
        self._is_writing = False
        self._is_in_line = False  # for its next turn
        self._is_ending = False  # closes when its answers are sent
        self._is_closed = False
        self.moved_bytes = 0
        """Bytes received and sent."""
        self._begin()

    def _begin(self) -> None:
        self._greet(self)
        self._read()

    def admit(
        self, session: Session, handler: FrameHandler, max_request_bytes: int, *, is_authenticated: bool = True
    ) -> None:
        """Frames are handled so from now on."""
        self._session, self._handler, self._max_request_bytes = session, handler, max_request_bytes
        self.is_authenticated = is_authenticated

    @property
    def has_begun(self) -> bool:
        """See `Stranger`."""
        return self.moved_bytes > (self._end - self._start if self._partial is not None else 0)

    @property
    def is_at_work(self) -> bool:
        """See `Holder`."""
        return self._at_work_bytes > 0

    # --- in

    def _read(self) -> None:
        if not self._is_reading and not self._is_ending and not self._is_closed:
            self._start_reading()

    def _start_reading(self) -> None:
        self._loop.add_reader(self._fd, self._on_readable)
        self._is_reading = True

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._loop.remove_reader(self._fd)
            self._is_reading = False

    def _on_readable(self) -> None:
        if self._aside:
            self._stop_reading()
            return
        partial, shared, held = self._partial, self._buffers.shared, 0
        if partial is not None and len(partial) < len(shared) and not self._memory.is_short:
            held = self._end - self._start
            held = held if held <= _MOST_MOVED_BYTES else 0
            shared[:held] = partial[self._start : self._start + held]  # there is room for the next frames, too
        try:
            if partial is None or held:
                received = self._socket.recv_into(shared[held:], _FRUGAL_BYTES if self._memory.is_short else 0)
            else:
                received = self._socket.recv_into(partial[self._end : self._end + _MOST_RECEIVED_BYTES])
        except BlockingIOError:
            return
        except OSError:  # it was reset: no client waits for the answer, so work in turns must end
            self.close()
            return
        if received == 0:
            if self._pending is not None and self._pending.is_at_work:
                self._stop_reading()  # the request is complete, and may need no answer; the end is read again later
            else:
                self.close_when_sent()
            return
        self.moved_bytes += received
        try:
            if partial is None or held:
                if partial is not None:
                    self._partial, self._room = None, 0
                    self._buffers.give_back(partial)
                self._feed(shared, 0, held + received)
            else:
                self._end += received
                self._continue_frame(partial)
        except Exception as error:  # noqa: BLE001 - the door of a connection's loop
            self._close_because(error)
            return
        self._go_on()

    def look_for_end(self) -> None:
        """Detects a reset that came together with the last bytes: the loop reports both at once, and nothing after an
        error (libuv's `uv__poll_io`). Called a while after bytes moved.
        """
        if self._is_reading:
            self._on_readable()

    def _feed(self, data: memoryview, start: int, end: int, *, was_aside: bool = False) -> None:
        """Handles every whole frame of data[start:end], or as many as a turn is worth; keeps the rest."""
        turn_end_s = 0.0
        most_unsent_bytes = self._memory.most_unsent_bytes
        while start < end:
            if self._pending is not None or self._out_bytes > most_unsent_bytes:
                self._set_aside(data, start, end, was_aside=was_aside)
                return
            if turn_end_s and monotonic() >= turn_end_s:
                self._set_aside(data, start, end, was_aside=was_aside)
                self._stand_in_line()
                return
            body = start + SIZE.size
            frame_end = body + self._frame_size(data, start) if body <= end else end + 1
            if frame_end > end:
                self._keep_partial(data, start, end)
                return
            assert self._handler is not None
            answer = self._handler.handle(data[body:frame_end], self._session)
            if isinstance(answer, list):
                self._send_later(answer)
            elif answer is not None:
                self._pending = answer
                answer.on_value = self._on_ready
                answer.on_failure = self._close_because
                if answer.is_at_work:
                    self._at_work_bytes = frame_end - body
            start = frame_end
            if not turn_end_s and start < end:
                turn_end_s = monotonic() + TURN_SECONDS

    def _set_aside(self, data: memoryview, start: int, end: int, *, was_aside: bool) -> None:
        self._aside = data[start:end] if was_aside else memoryview(bytearray(data[start:end]))

    def _stand_in_line(self) -> None:
        """Sends more of files, and handles requests set aside, when its turn comes and not before."""
        if self._is_writing:
            self._loop.remove_writer(self._fd)
            self._is_writing = False
        if not self._is_in_line:
            self._is_in_line = True
            self._turns.wait(self._take_turn)

    def _take_turn(self) -> None:
        self._is_in_line = False
        if not self._is_closed:
            self._go_on()

    def _frame_size(self, data: memoryview, start: int) -> int:
        (size,) = SIZE.unpack_from(data, start)
        if not 0 <= size <= self._max_request_bytes:
            limit = "socket.request.max.bytes" if self.is_authenticated else "sasl.server.max.receive.size"
            speech = find_speech(bytes(data[start : start + 8]))
            said = f"a client speaks {speech} here: " if speech else ""
            raise MalformedMessageError(f"{said}request of {size} bytes, {limit} is {self._max_request_bytes}")
        return int(size)

    def _keep_partial(self, data: memoryview, start: int, end: int) -> None:
        """Leaves the frame's beginning in place, if it is long and the rest has room there. Otherwise moves it, into a
        buffer with room for the whole frame if that is of a usual size.
        """
        held = end - start
        needed = SIZE.size + self._frame_size(data, start) if held >= SIZE.size else 0
        if held > _MOST_MOVED_BYTES and start + needed <= len(data):
            self._buffers.keep(data)
            self._partial, self._start, self._end = data, start, end
        else:
            if self._memory.is_short or not self.is_authenticated:
                self._partial = new_buffer(max(min(needed, 2 * held), held + 1))
            else:
                self._partial = self._buffers.take(max(min(needed, SHARED_BUFFER_BYTES), held + 1))
            self._partial[:held] = data[start:end]
            self._start, self._end = 0, held
        self._room = len(self._partial)

    def _continue_frame(self, partial: memoryview) -> None:
        """Receives more of the frame in the connection's own buffer; handles it when complete, with what follows it."""
        start, end = self._start, self._end
        needed = start + SIZE.size
        if end >= needed:
            needed += self._frame_size(partial, start)
        if end < needed:
            if end == len(partial):
                self._ask_for_room(partial, needed)
            return
        self._partial = None
        self._room = 0
        self._feed(partial, start, end)
        if self._at_work_bytes > LARGE_BYTES:
            self._lent = partial  # it holds nothing else by now
        elif self._partial is not partial:
            self._buffers.give_back(partial)

    def _ask_for_room(self, partial: memoryview, needed_bytes: int) -> None:
        """Asks for room for more of the frame; for all of it at once, if it is large."""
        size_bytes = min(2 * len(partial), needed_bytes)
        if size_bytes > LARGE_BYTES:
            size_bytes = needed_bytes  # all of it is reserved, and the received part is moved once
        if not self._memory.is_short:
            size_bytes = buffer_size(size_bytes)
        self._next_size = size_bytes
        self._next_room = max(self._room, needed_bytes if size_bytes > LARGE_BYTES else size_bytes)
        self._waits_for_room = True
        self._memory.ask(self, self._held - self._room + self._next_room)
        if self._waits_for_room:
            self._stop_reading()

    def on_granted(self) -> None:
        """See `Holder`."""
        assert self._partial is not None
        self._waits_for_room = False
        self._held += self._next_room - self._room
        self._room = self._next_room
        self._partial = self._buffers.grow(self._partial, self._end, self._next_size)
        self._read()

    def _account(self) -> None:
        is_unsent = self._is_writing or self._is_in_line
        unsent = self._out_bytes - self._out_file_bytes if is_unsent else 0
        held = self._room + len(self._aside) + self._at_work_bytes + unsent + self._encrypted_bytes()
        if held != self._held and not self._waits_for_room:
            self._held = held
            self._memory.hold(self, held)

    def _encrypted_bytes(self) -> int:
        return 0

    def _on_ready(self, pieces: list[Piece]) -> None:
        """Sends the awaited answer; then later requests have their turn."""
        self._pending, self._at_work_bytes = None, 0
        if self._lent is not None:
            self._buffers.give_back(self._lent)
            self._lent = None
        if not self._is_closed:
            self._send_later(pieces)
            self._go_on()

    def _send_later(self, pieces: list[Piece]) -> None:
        self._out += pieces
        if len(pieces) == 1:  # nearly always; then it is bytes, because an answer begins with its size
            self._out_bytes += len(pieces[0])
        else:
            self._out_bytes += sum(map(len, pieces))
            self._out_file_bytes += _bytes_in_files(pieces)

    def _go_on(self) -> None:
        """Sends as much as possible, and handles requests set aside as long as there is room for answers."""
        if self._out:
            self._flush()
        while self._aside and self._may_handle_more():
            aside, self._aside = self._aside, memoryview(b"")
            try:
                self._feed(aside, 0, len(aside), was_aside=True)
            except Exception as error:  # noqa: BLE001 - the door of a connection's loop
                self._close_because(error)
                return
            self._flush()
        if self._is_ending and not self._out:
            self._finish()
        if self._is_closed:
            return
        if not self._is_reading and not self._aside and not self._waits_for_room:
            self._read()
        is_waiting = self._is_writing or self._is_in_line
        if self._held or self._room or self._aside or self._at_work_bytes or is_waiting:
            self._account()

    def _may_handle_more(self) -> bool:
        is_free = self._pending is None and not self._is_in_line
        return is_free and self._out_bytes <= self._memory.most_unsent_bytes

    def _close_because(self, error: Exception) -> None:
        if isinstance(error, MalformedMessageError):
            _log.warning(
                "closing a connection of %s to %s: %s", self.client_host, self._listener, error, extra=self._fields
            )
        elif not isinstance(error, UnacknowledgedError | NotInformedError):
            _log.error(
                "closing a connection of %s to %s after an unexpected error",
                self.client_host,
                self._listener,
                exc_info=error,
                extra=self._fields,
            )
        self.close_when_sent()

    @property
    def _fields(self) -> dict[str, dict[str, str]]:
        """The fields of structured log lines besides the text, which is the same for each attempt of a client."""
        return {"fields": {"connection": self._peer}}

    # --- out

    def _flush(self) -> None:
        """Sends as much as the socket takes now; the rest when it takes more."""
        if self._is_closed:
            return
        sent_of_files = 0
        try:
            while self._out:
                first = self._out[0]
                if isinstance(first, FileRegion):
                    if self._is_in_line or sent_of_files >= _TURN_BYTES:
                        self._stand_in_line()
                        return
                    sent_of_files += self._send_region(first)
                elif len(self._out) > 1:
                    self._send_bytes()
                else:
                    sent = self._socket.send(first)  # type: ignore[arg-type]  # a piece is a region or bytes
                    self._out_bytes -= sent
                    self.moved_bytes += sent
                    if sent < len(first):
                        self._out[0] = memoryview(first)[sent:]  # type: ignore[arg-type]
                    else:
                        self._out.popleft()
        except BlockingIOError:
            self._write_later()
            return
        except OSError:
            self.close()
            return
        if self._is_writing:
            self._loop.remove_writer(self._fd)
            self._is_writing = False

    def _write_later(self) -> None:
        if not self._is_writing:
            self._loop.add_writer(self._fd, self._go_on)
            self._is_writing = True

    def close_when_sent(self) -> None:
        """Takes no further request, and waits for nothing; sends finished answers first, as Kafka does."""
        self._is_ending = True
        self._stop_reading()
        self._drop_requests()
        self._go_on()

    def _send_region(self, region: FileRegion) -> int:
        """Sends as much of it as a turn is worth; returns how much."""
        sent = self._send_file(region, min(region.size_bytes, _TURN_BYTES))
        if sent == 0:
            raise ConnectionError("the file was cut under an answer")
        self._out_bytes -= sent
        self._out_file_bytes -= sent
        self.moved_bytes += sent
        self._out.popleft()
        if sent < region.size_bytes:
            self._out.appendleft(FileRegion(region.file, region.position + sent, region.size_bytes - sent))
        return sent

    def _send_file(self, region: FileRegion, size_bytes: int) -> int:
        """Returns how much was sent. Raises the socket's and the disk's errors."""
        try:
            return os.sendfile(self._fd, region.file.fd, region.position, size_bytes)
        except (BlockingIOError, ConnectionError):
            raise
        except OSError:  # of the disk, of the network, or of a system whose sendfile does not do this
            data = self._read_region(region, size_bytes)
        return self._socket.send(data) if data else 0

    def _read_region(self, region: FileRegion, size_bytes: int) -> bytes:
        try:
            return region.file.read_at(size_bytes, region.position)
        except OSError as error:
            self._loop.call_soon(self._on_unreadable, region.file.path, error)
            raise

    def _send_bytes(self) -> None:
        run: list[bytes | bytearray | memoryview] = []
        for piece in self._out:
            if len(run) == _MAX_IOV or isinstance(piece, FileRegion):
                break
            run.append(piece)  # type: ignore[arg-type]  # a piece is a region or bytes
        more = _MSG_MORE if len(self._out) > len(run) else 0
        sent = self._socket.sendmsg(run, (), more)
        self._out_bytes -= sent
        self.moved_bytes += sent
        for piece in run:
            self._out.popleft()
            if sent < len(piece):
                self._out.appendleft(memoryview(piece)[sent:])
                return
            sent -= len(piece)

    def _finish(self) -> None:
        """Closes, as all is sent."""
        self.close()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._stop_reading()
        if self._is_writing:
            self._loop.remove_writer(self._fd)
        self._drop_requests()
        self._out.clear()
        self._socket.close()
        self._on_close(self)

    def _drop_requests(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
        self._pending, self._at_work_bytes = None, 0
        self._lent = None  # not given back: a step of the work may be the one that closes the connection
        if self._partial is not None:
            self._buffers.give_back(self._partial)
        self._partial, self._room = None, 0
        self._aside = memoryview(b"")
        self._memory.forget(self)
        self._held, self._waits_for_room = 0, False


def _bytes_in_files(pieces: list[Piece]) -> int:
    """Counts the bytes that are in memory only while they are sent."""
    return sum(len(piece) for piece in pieces if isinstance(piece, FileRegion))


def _peer(sock: socket.socket | TlsTransport) -> tuple[str, str]:
    try:
        name = sock.getpeername() or ("localhost", 0)  # the socket in the data directory has no names
    except OSError:
        return "", "a client that is gone"
    return name[0], f"{name[0]}:{name[1]}"
