"""A client's connection with TLS: first the handshake, then requests; and the bytes that the loop does not see."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from core.broker.serving.connection import Connection
from core.broker.serving.tls_transport import PIECE_BYTES, TlsError, TlsTransport
from core.files.file_records import FileRegion
from core.protocol.frame import SIZE


class TlsConnection(Connection):
    """Owned by the loop's task. It is greeted after the handshake, whose steps wait in a queue of their own
    (`FairScheduler.queue`).
    """

    def __init__(self, *, tls: TlsTransport, on_failure: Callable[[], None], **settings: Any) -> None:
        """`settings` are those of `Connection`; `on_failure` is called if the handshake fails."""
        self.tls = tls
        self._on_failure = on_failure
        super().__init__(sock=tls, **settings)

    def _begin(self) -> None:
        self._read()

    @property
    def has_begun(self) -> bool:
        """See `Stranger`."""
        return self.tls.has_begun

    # --- in

    def _on_readable(self) -> None:
        if self._is_ending:
            self._discard()
            return
        try:
            super()._on_readable()
        except TlsError as error:
            self._fail(error)
            return
        if self._is_closed:
            return
        if self.tls.needs_step:
            self._stop_reading()
            self._turns.queue(self._shake_hands)
        elif self.tls.has_unsent or self.tls.has_plaintext:  # new keys, for example, or half of a long record
            self._go_on()

    def _shake_hands(self) -> None:
        if self._is_closed or self._is_ending:
            return
        try:
            self.tls.shake_hands()
            if self.tls.is_ready:
                self._greet(self)
        except TlsError as error:
            self._fail(error)
        except OSError:
            self.close()
        else:
            self._go_on()

    def _fail(self, error: TlsError) -> None:
        if not self.tls.is_ready:
            self._on_failure()
        self._close_because(error)

    def _missing_bytes(self) -> int:
        """Returns how many bytes an incomplete frame needs, as far as its size has come."""
        if self._partial is None or self._memory.is_short:
            return 0
        held = self._end - self._start
        return SIZE.size + self._frame_size(self._partial, self._start) - held if held >= SIZE.size else 0

    def _take_turn(self) -> None:
        super()._take_turn()
        if self._is_reading and not self._is_ending and self.tls.has_plaintext:
            self._on_readable()

    def _go_on(self) -> None:
        if not self._out and self.tls.has_unsent:
            self._flush()
        super()._go_on()
        if self._is_closed or self._is_ending:
            return
        if self._is_reading:
            self.tls.expect(self._missing_bytes())
            if self.tls.has_plaintext:
                self._stand_in_line()
        self._account()

    def _encrypted_bytes(self) -> int:
        return self.tls.held_bytes

    # --- out

    def _flush(self) -> None:
        super()._flush()
        if self._is_closed or self._is_writing or self._is_in_line:
            return
        try:
            self.tls.flush()
        except BlockingIOError:
            self._write_later()
        except OSError:
            self.close()

    def _send_file(self, region: FileRegion, size_bytes: int) -> int:
        self.tls.flush()
        piece = self._buffers.scratch[: min(size_bytes, PIECE_BYTES)]
        try:
            count = os.preadv(region.file.fd, [piece], region.position)
        except OSError as error:
            self._loop.call_soon(self._on_unreadable, region.file.path, error)
            raise
        return self.tls.send(piece[:count]) if count else 0

    def _finish(self) -> None:
        """Tells the client that no more comes, and closes when that is sent."""
        try:
            is_sent = self.tls.say_end()
        except OSError:
            is_sent = True
        if not is_sent:
            self._flush()
        elif self.tls.is_ready or not self.tls.has_begun:
            self.close()
        elif not self._is_reading:
            self._linger()

    def _linger(self) -> None:
        """Waits until the client has read why it was refused, and closes; or until its time is over. What it sends
        meanwhile is read: bytes in a socket that is closed would take back the alert that is on its way.
        """
        try:
            self.tls.end()
        except OSError:
            self.close()
            return
        self._start_reading()

    def _discard(self) -> None:
        try:
            is_over = self.tls.discard()
        except BlockingIOError:
            return
        except OSError:
            is_over = True
        if is_over:
            self.close()
