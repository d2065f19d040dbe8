"""How pytest-xdist gives out the tests: a file at a time, also after a worker has crashed.

Its own scheduler for that (`--dist loadfile`) gives the files of a worker that crashed out again as they are, with the
test that crashed it, and with those of which every test was run: a worker that gets one of these has nothing to do and
is asked for nothing more, so that the run never ends. When a second worker crashes while the one that replaces the
first still collects, that scheduler gives it a file before it knows its tests: the error is caught where nobody says
so, and neither that file nor the second crash is heard of again (both seen with pytest-xdist 3.8).
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling


class FileScheduling(LoadFileScheduling):
    def remove_node(self, node: Any) -> str | None:
        """Gives the test that was being run if the worker crashed; the rest of its tests goes to others."""
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
