"""Log lines on stderr: for people, or as JSON for programs."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple, TextIO

_REPEATED_AFTER_SECONDS = 10
_MOST_REMEMBERED = 1000


class LogFormat(StrEnum):
    text = "text"
    json = "json"


class JsonFormatter(logging.Formatter):
    """One object a line: time (ISO 8601, UTC), level, logger, message; what a call gives as `extra={"fields": ..}` adds
    to these or goes before them; and with an exception its traceback.
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
    """Writes a warning or error that is logged again and again once in ten seconds, and then how often it came
    meanwhile: a client that tries without end must not fill a disk. Of different ones the last thousand are remembered.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        super().__init__(stream)
        self._clock = clock
        self._written: OrderedDict[_Text, _Written] = OrderedDict()
        """The oldest first."""

    def emit(self, record: logging.LogRecord) -> None:
        now = self._clock()
        self._forget(now - _REPEATED_AFTER_SECONDS)
        if record.levelno >= logging.WARNING and not record.exc_info:
            text = _Text(record.name, record.levelno, record.getMessage())
            if text in self._written:
                self._written[text].left_out += 1
                return
            self._written[text] = _Written(now)
        super().emit(record)

    def close(self) -> None:
        self.acquire()
        try:
            self._forget(math.inf)
        finally:
            self.release()
        super().close()

    def _forget(self, before: float) -> None:
        """Forgets what was written before that time, and more if too much is remembered."""
        while self._written:
            text, written = next(iter(self._written.items()))
            if written.at > before and len(self._written) <= _MOST_REMEMBERED:
                return
            del self._written[text]
            if written.left_out:
                times = "once" if written.left_out == 1 else f"{written.left_out} times"
                message = f"{text.message} (again {times} in {_REPEATED_AFTER_SECONDS} s)"
                values = {"name": text.logger, "levelno": text.level, "levelname": logging.getLevelName(text.level)}
                super().emit(logging.makeLogRecord({**values, "msg": message}))


class _Text(NamedTuple):
    logger: str
    level: int
    message: str


@dataclass(slots=True)
class _Written:
    at: float
    left_out: int = 0
    """How often it came since."""


def start_logging(format_: LogFormat, *, log_requests: bool = False) -> None:
    """Starts it; `PLOG_DEBUG` in the environment asks for everything."""
    handler = SparingHandler(sys.stderr)
    if format_ is LogFormat.json:
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    level = logging.DEBUG if "PLOG_DEBUG" in os.environ else logging.INFO
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.getLogger("plog.request").setLevel(logging.DEBUG if log_requests else logging.INFO)
