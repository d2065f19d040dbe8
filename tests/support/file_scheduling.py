"""How pytest-xdist gives out the tests: a file at a time, also after a worker has crashed.

pytest-xdist's own scheduler for that (`--dist loadfile`) hands out the files of a crashed worker again as they are:
with the test that crashed it, and with files whose tests have all been run. A worker that gets such a finished file
reports nothing, is given nothing more, and the run never ends. If a second worker crashes while the replacement of the
first still collects, that scheduler gives the replacement a file before it knows its tests: pytest-xdist drops the
error, that file and the second crash (both seen with pytest-xdist 3.8).

Files that take a minute or more are begun first. pytest-xdist's own order begins with the files of most tests: the
longest have one test, would be begun last, and the last of them would be waited for by all other workers.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

LONGEST = (
    "cli/test_runbook.py",
    "crash/test_spark_cluster.py",
    "interop/test_secured_kafka.py",
    "interop/test_spark.py",
    "interop/test_benchmarks.py",
    "interop/test_plog_controls.py",
    "crash/test_spark_replay.py",
    "interop/test_spark_lake.py",
    "interop/test_spark_connector.py",
    "interop/test_exchange.py",
    "interop/test_mixed_coordinators.py",
    "cli/test_examples.py",
    "interop/test_cluster_features.py",
    "interop/test_spark_speculation.py",
    "cli/test_troubleshooting.py",
    "crash/test_copiers.py",
    "cli/test_tours.py",
    "cli/test_installed.py",
    "cli/test_doctor.py",
    "interop/test_spark_differential.py",
    "interop/test_spark_folders.py",
    "interop/test_compaction.py",
    "interop/test_plogs_alone.py",
    "property/test_one_truth.py",
    "cli/test_unreadable_files.py",
    "interop/test_kafkas_directories.py",
    "interop/test_transactions.py",
    "interop/test_spark_stream_sink.py",
    "interop/test_connect.py",
    "interop/test_spark_queries.py",
    "interop/test_mixed_cluster.py",
    "interop/test_recovered_directories.py",
    "interop/test_old_consumers.py",
    "interop/test_port_forwards.py",
    "interop/test_resolve.py",
    "cli/test_container_files.py",
    "interop/test_demo.py",
    "crash/test_recovery.py",
    "interop/test_share_group_state.py",
    "interop/test_rolling.py",
    "crash/test_chaos.py",
    "crash/test_kill_loop.py",
    "cli/test_standard_streams.py",
)
"""In `tests`, the longest first; `scripts/test --all --durations 50` shows them. One that is not here ends later, and
breaks nothing.
"""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a worker: all collect the same, in the order in which the files are given out."""
    if hasattr(config, "workerinput"):
        places = {name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(f"{item.path.parent.name}/{item.path.name}", len(places)))


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
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # the order is that of the collection
    return FileScheduling(config, log)
