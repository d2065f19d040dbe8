"""Fixtures for tests that need a Kafka; pytest finds them where plog is installed.

    def test_orders(plog_broker):
        service = Orders(kafka=plog_broker.bootstrap_servers)

`plog_broker` is a broker in the test's own process, there in a few milliseconds (the first of a run imports it, in some
200 ms); `plog_server` is one in a process of its own. Each test gets a fresh one.
`@pytest.mark.plog(num_partitions="3")` sets what is a setting of a broker (_ for a dot). The broker's directory is kept
if the test failed, and its report says where.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from plog.testing import RunningBroker

_FAILED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "plog(**settings): settings of the broker that plog_broker or plog_server gives")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.fixture
def plog_broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """Gives a fresh broker in this process."""
    from plog.testing import running_broker

    yield from _run(request, running_broker)


@pytest.fixture
def plog_server(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """Gives a fresh `plog serve`, in a process of its own."""
    from plog.testing import running_server

    yield from _run(request, running_server)


def _run(
    request: pytest.FixtureRequest, start: Callable[..., AbstractContextManager[RunningBroker]]
) -> Iterator[RunningBroker]:
    settings: dict[str, str] = {}
    for mark in request.node.iter_markers("plog"):
        settings = {**mark.kwargs, **settings}  # the one nearest to the test counts
    directory = Path(tempfile.mkdtemp(prefix="plog-"))
    with start(directory / "data", **settings) as broker:
        yield broker
    if request.node.stash.get(_FAILED, False):
        request.node.add_report_section("teardown", "plog", f"the broker's data is kept in {directory / 'data'}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
