"""Log lines on stderr: for people, or as JSON for programs."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from enum import StrEnum


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


def start_logging(format_: LogFormat, *, log_requests: bool = False) -> None:
    """Starts it; `PLOG_DEBUG` in the environment asks for everything."""
    handler = logging.StreamHandler(sys.stderr)
    if format_ is LogFormat.json:
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    level = logging.DEBUG if "PLOG_DEBUG" in os.environ else logging.INFO
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.getLogger("plog.request").setLevel(logging.DEBUG if log_requests else logging.INFO)
