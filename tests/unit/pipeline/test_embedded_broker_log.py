"""What a command says while the engine is in its own process."""

from __future__ import annotations

import logging

from core.pipeline.embedded_transport import each_line_once


def test_what_is_tried_again_and_again_says_its_failure_once() -> None:
    def record(text: str) -> logging.LogRecord:
        return logging.LogRecord("plog", logging.ERROR, "", 0, "could not write %s", (text,), None)

    handler = logging.lastResort
    assert handler is not None
    with each_line_once():
        assert [bool(handler.filter(record(text))) for text in ("a", "a", "b", "a")] == [True, False, True, False]
    assert handler.filter(record("a"))
