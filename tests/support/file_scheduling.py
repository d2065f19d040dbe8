"""How pytest-xdist gives out the tests: a file at a time, also after a worker has crashed.

pytest-xdist's own scheduler for that (`--dist loadfile`) hands out the files of a crashed worker again as they are:
with the test that crashed it, and with files whose tests have all been run. A worker that gets such a finished file
reports nothing, is given nothing more, and the run never ends. If a second worker crashes while the replacement of the
first still collects, that scheduler gives the replacement a file before it knows its tests: pytest-xdist drops the
error, that file and the second crash (both seen with pytest-xdist 3.8).
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling


class FileScheduling(LoadFileScheduling):
    def remove_node(self, node: Any) -> str | None:
        """Returns the test that crashed the worker, or None; the other tests of the worker go to others."""
        left = {
            file: {test: False for test, is_done in tests.items() if not is_done}
            for file, tests in self.assigned_work.pop(node).items()
        }
        left = {file: tests for file, tests in left.items() if tests}
        if not left:
            return None
        file, tests = next(iter(left.items()))
        crashed = next(iter(tests))
        del tests[crashed]
        if not tests:
            del left[file]
        self.workqueue.update(left)
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: Any) -> None:
        """Gives a worker more if it needs it; one that still collects is asked again when it is done with that."""
        if node in self.registered_collections:
            super()._reschedule(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling | None:
    return FileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
