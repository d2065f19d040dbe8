"""`plog serve` that is told to stop more than once."""

from __future__ import annotations

import sys
from pathlib import Path

from core.log.file_names import CLEAN_SHUTDOWN
from tests.support.server import Server

STOPPED_AGAIN = """
import os, signal, sys
from cli.main import run
from core.log.log_manager import LogManager

close = LogManager._write_at_end

def close_and_be_told_again(self, broker_epoch):
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
    close(self, broker_epoch)

LogManager._write_at_end = close_and_be_told_again
sys.exit(run())
"""
"""The signals come while logs are closed, whatever that takes."""


def test_a_stop_that_is_asked_for_again_says_how_far_it_is_and_stays_clean(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", command=(sys.executable, "-c", STOPPED_AGAIN, "serve"))
    with server:
        pass
    said = server.log.read_text()
    assert said.count("stopping: 0 of 0 partitions closed; kill -9 ends it at once") == 2, said
    assert "Traceback" not in said
    assert (tmp_path / "data" / CLEAN_SHUTDOWN).exists()
