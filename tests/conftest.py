"""Fixtures that all tests share. Nothing here sleeps, takes a fixed port, or talks beyond loopback."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.class_archives import spark_options
from tests.support.file_scheduling import pytest_collection_modifyitems as pytest_collection_modifyitems
from tests.support.file_scheduling import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler
from tests.support.manual_clock import ManualClock
from tests.support.server import Server

settings.register_profile("first", deadline=None, max_examples=25)
settings.register_profile("longer", deadline=None)
settings.register_profile("torture", deadline=None, max_examples=5000)  # what scripts/torture asks for
settings.load_profile("first")

for _name in ("PLOG_DATA_DIR", "PLOG_MAX_EXPANSION", "PLOG_PROFILE", "SCHEMA_REGISTRY_URL"):
    os.environ.pop(_name, None)
os.environ["PLOG_CONFIG"] = ""  # nobody's own defaults
os.environ["SPARK_SUBMIT_OPTS"] = " ".join(spark_options())  # of every Spark that a test starts
signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background jobs, and their children, ignore it
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what nohup starts, and its children, ignore it


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--all", False) and config.getoption("--hypothesis-profile", None) is None:
        settings.load_profile("longer")


def pytest_collection_finish() -> None:
    """Leaves out all that was made until now when garbage is looked for: with thousands of tests that takes a second,
    in which a server in this process answers nobody.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine: in the loop of its `runner`, if it has that fixture."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    run = pyfuncitem.funcargs["runner"].run if "runner" in pyfuncitem.funcargs else asyncio.run
    run(pyfuncitem.obj(**arguments))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Gives every test the log levels that the first one met: a broker in this process may have set its loggers to
    others, and with its request log on it decodes every request.
    """
    try:
        return (yield)
    finally:
        for name, logger in logging.root.manager.loggerDict.items():
            if isinstance(logger, logging.Logger) and name.startswith("plog"):
                logger.setLevel(logging.NOTSET)
        logging.root.setLevel(logging.WARNING)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """Of the loop that the test runs in."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A `plog serve` process of its own, on a free port; its directory is tmp_path/"data"."""
    with Server(tmp_path / "data") as running:
        yield running
