"""`python -m plog` and the `plog` command."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from typing import NoReturn


def main() -> None:
    """Runs the command line and exits with its code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `run` heeds it: no traceback from the middle of an import
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else NumPy starts threads for work that plog never gives it
    from cli.standard_streams import open_standard_streams

    open_standard_streams()
    from cli.main import run

    _leave(run())


def _leave(code: int) -> NoReturn:
    """Exits as sys.exit does, but without taking NumPy and Arrow apart, which is a sixth of a short command's time."""
    if threading.active_count() > 1:
        sys.exit(code)
    atexit._run_exitfuncs()  # noqa: SLF001 - what Python itself would do now
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # `run` has reported everything by now
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
