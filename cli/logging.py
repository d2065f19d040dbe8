"""Log lines on stderr: for people, or as JSON for programs."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple, TextIO

from core.common.printable import printable

_REPEATED_AFTER_SECONDS = 10
_MOST_REMEMBERED = 1000


class LogFormat(StrEnum):
    text = "text"
    json = "json"


class TextFormatter(logging.Formatter):
    """Time, level, logger and message on one line: the name of a transaction, which a client chooses, may hold line
    breaks and what looks like lines of the audit log. A traceback follows on lines of its own.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(super().formatMessage(record), keeps="\t")


class JsonFormatter(logging.Formatter):
    """One object a line: time (ISO 8601, UTC), level, logger, message; `extra={"fields": ..}` of a call adds to these
    or replaces them; and with an exception its traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class SparingHandler(logging.StreamHandler[TextIO]):
    """Writes a repeated warning or error once in ten seconds, with the count of its repetitions: a client that tries
    without end must not fill a disk. Other lines of the same logger in between, such as that all is well again, restart
    the ten seconds. It remembers the last thousand different lines.

    Called by any thread; `_written` is guarded by the handler's lock, under which `emit` is called.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns seconds since 1970."""
        super().__init__(stream)
        self._clock = clock
        self._written: OrderedDict[_Text, _Written] = OrderedDict()  # the one that was written first comes first

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._forget_old()
            if record.levelno < logging.WARNING:
                self._forget([text for text in self._written if text.logger == record.name])
                super().emit(record)
                return
            text = _Text(record.name, record.levelno, record.getMessage(), _where_raised(record))
            written = self._written.get(text)
            if written is not None:
                written.left_out += 1
                written.last_s = self._clock()
                return
            self._written[text] = _Written(self._clock(), self._clock())
            super().emit(record)
        except Exception:  # noqa: BLE001 - the caller goes on, whatever is wrong with its line
            self.handleError(record)

    def close(self) -> None:
        self.acquire()
        try:
            self._forget(list(self._written))
        finally:
            self.release()
        super().close()

    def _forget_old(self) -> None:
        """Forgets lines written ten seconds ago, and more if there are too many. A clock that was set back makes
        nothing last longer.
        """
        now_s = self._clock()
        while self._written:
            text, written = next(iter(self._written.items()))
            if 0 <= now_s - written.first_s < _REPEATED_AFTER_SECONDS and len(self._written) <= _MOST_REMEMBERED:
                return
            self._forget([text])

    def _forget(self, texts: Iterable[_Text]) -> None:
        """Reports how often each was repeated since it was written."""
        for text in texts:
            written = self._written.pop(text, None)
            if written is not None and written.left_out:
                super().emit(_summary(text, written))


class _Text(NamedTuple):
    logger: str
    level: int
    message: str
    where_raised: str
    """The logged exception, and the line that raised it; "" without one."""


@dataclass(slots=True)
class _Written:
    first_s: float
    last_s: float
    left_out: int = 0
    """How often it was repeated since it was written."""


def _where_raised(record: logging.LogRecord) -> str:
    kind, error, trace = record.exc_info if isinstance(record.exc_info, tuple) else (None, None, None)
    if kind is None:
        return ""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
    return f"{kind.__name__}: {error} {where}"


def _summary(text: _Text, written: _Written) -> logging.LogRecord:
    """Returns the line with the count of a text's repetitions, and the time of the last."""
    times = "once" if written.left_out == 1 else f"{written.left_out} times"
    seconds = max(written.last_s - written.first_s, 0)
    values = {
        "name": text.logger,
        "levelno": text.level,
        "levelname": logging.getLevelName(text.level),
        "msg": f"{text.message} (again {times} in {seconds:.1f} s)",
        "created": written.last_s,
        "msecs": int(written.last_s % 1 * 1000),
    }
    return logging.makeLogRecord(values)


def start_logging(format_: LogFormat, *, log_requests: bool = False) -> None:
    """Starts logging; with `PLOG_DEBUG` in the environment, at the debug level."""
    handler = SparingHandler(sys.stderr)
    if format_ is LogFormat.json:
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter())
    level = logging.DEBUG if "PLOG_DEBUG" in os.environ else logging.INFO
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.getLogger("plog.request").setLevel(logging.DEBUG if log_requests else logging.INFO)
