"""Shows the user's name of a folder, if work on it is done under another path: a shadow of it, or a stage."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from core.common.errors import PlogError


class PathAlias(logging.Filter):
    """Replaces `temporary` by `directory` in texts, in errors, and, between `start` and `stop`, in log lines of plog's
    loggers. Immutable.
    """

    def __init__(self, temporary: Path, directory: Path) -> None:
        super().__init__()
        self._temporary = str(temporary)
        self._directory = str(directory)

    def start(self) -> None:
        for logger in _loggers():
            logger.addFilter(self)

    def stop(self) -> None:
        for logger in _loggers():
            logger.removeFilter(self)

    def __enter__(self) -> None:
        self.start()

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.stop()
        if isinstance(error, PlogError):
            self.rename(error)

    def text(self, text: str) -> str:
        return text.replace(self._temporary, self._directory)

    def rename(self, error: PlogError) -> None:
        """Changes the error's text, and nothing else."""
        error.message = self.text(error.message)
        error.args = (error.message,)
        if error.hint is not None:
            error.hint = self.text(error.hint)

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if self._temporary in message:
            record.msg, record.args = self.text(message), None
        return True


def _loggers() -> Iterator[logging.Logger]:
    for name in list(logging.Logger.manager.loggerDict):
        if name.startswith("plog."):
            yield logging.getLogger(name)
