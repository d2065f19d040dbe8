"""Fixtures for tests that need a Kafka; pytest finds them where plog is installed.

    def test_orders(plog_broker):
        service = Orders(kafka=plog_broker.bootstrap_servers)

`plog_broker` is a broker in the test's own process, there in a few milliseconds (the first of a run imports it, in some
200 ms); `plog_server` is one in a process of its own. Each test gets a fresh one.
`@pytest.mark.plog(num_partitions="3")` sets what is a setting of a broker (_ for a dot), and `security="sasl_ssl"` what
its listener speaks. The broker's directory is kept if the test failed, and its report says where.

`plog_cluster` is a cluster of several brokers, there in a few seconds, which all tests of a module share:

    pytestmark = pytest.mark.plog_cluster(brokers=3, min_insync_replicas="2")

    def test_failover(plog_cluster):
        plog_cluster.kill(plog_cluster.controller())

`plog_cluster_scope = session` in pytest's configuration has all tests of a run share one. `plog_cluster_brokers`,
`plog_cluster_features` and `plog_cluster_settings` there say what no mark says.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from plog.testing import RunningBroker, RunningCluster, RunningServer

_Broker = TypeVar("_Broker", bound="RunningBroker")
_FAILED = pytest.StashKey[bool]()
_MARK = "plog_cluster"
_SCOPE, _BROKERS, _SETTINGS = "plog_cluster_scope", "plog_cluster_brokers", "plog_cluster_settings"
_FEATURES = "plog_cluster_features"
_SCOPES = ("session", "package", "module", "class", "function")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(_SCOPE, f"who shares a plog_cluster: the tests of a {', '.join(_SCOPES)}", default="module")
    parser.addini(_BROKERS, "how many brokers a plog_cluster has, unless a mark says it", default="3")
    parser.addini(_FEATURES, "what a plog_cluster finalizes: none, or FEATURE=LEVEL; a mark wins", type="linelist")
    parser.addini(_SETTINGS, "settings of a plog_cluster's brokers, KEY=VALUE; a mark wins", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "plog(security='plaintext', **settings): the broker that plog_broker or plog_server gives"
    )
    config.addinivalue_line(
        "markers",
        "plog_cluster(brokers=3, features=(), security='plaintext', **settings): the brokers of plog_cluster",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for node in item.listchain():
            node.stash[_FAILED] = True
        cluster = getattr(item, "funcargs", {}).get(_MARK)
        if cluster is not None:
            report.sections.append(("plog", f"the cluster's data and logs are kept in {cluster.data_dir}"))
    return report


@pytest.fixture
def plog_broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """Returns a fresh broker in this process."""
    from plog.testing import running_broker

    yield from _run(request, running_broker)


@pytest.fixture
def plog_server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """Returns a fresh `plog serve` in a process of its own, which the test may kill and start again."""
    from plog.testing import running_server

    yield from _run(request, running_server)


def _run(request: pytest.FixtureRequest, start: Callable[..., AbstractContextManager[_Broker]]) -> Iterator[_Broker]:
    from plog.testing import ensure_obeyed, protocol_of

    settings = _marked(request, "plog")
    with _failing():
        protocol_of(settings.get("security", "plaintext"), shown="plog(security={!r})")
        ensure_obeyed({name: value for name, value in settings.items() if name != "security"}, shown="plog({}=..)")
    directory = Path(tempfile.mkdtemp(prefix="plog-"))
    with start(directory / "data", **settings) as broker:
        yield broker
    if request.node.stash.get(_FAILED, False):
        request.node.add_report_section("teardown", "plog", f"the broker's data is kept in {directory / 'data'}")
    else:
        shutil.rmtree(directory, ignore_errors=True)


def _marked(request: pytest.FixtureRequest, name: str) -> dict[str, Any]:
    """Returns the settings of the marks of that name; the mark nearest to the test wins."""
    settings: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers(name))):
        if mark.args:
            pytest.fail(f"{name}({mark.args[0]!r}): expected SETTING=VALUE, with _ for a dot", pytrace=False)
        settings |= mark.kwargs
    return settings


@contextmanager
def _failing() -> Iterator[None]:
    """Fails the test, in a line, for a setting of its mark that is refused."""
    from plog.testing import UsageError

    try:
        yield
    except UsageError as error:
        pytest.fail(f"{error.message}{f'; {error.hint}' if error.hint else ''}", pytrace=False)


def _cluster_scope(fixture_name: str, config: pytest.Config) -> Any:  # noqa: ARG001 - pytest names it
    scope = config.getini(_SCOPE)
    if scope not in _SCOPES:
        raise pytest.UsageError(f"{_SCOPE} = {scope}: expected one of {', '.join(_SCOPES)}")
    return scope


@pytest.fixture(scope=_cluster_scope)
def plog_cluster(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    """Returns a cluster of several brokers, which the tests of a module share."""
    from plog.testing import running_cluster

    options = _cluster_options(request)
    directory = Path(tempfile.mkdtemp(prefix="plog-cluster-"))
    with running_cluster(directory, **options) as cluster:
        yield cluster
    if not request.node.stash.get(_FAILED, False):
        shutil.rmtree(directory, ignore_errors=True)


def _cluster_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Returns the number of brokers, their features and their settings. A mark on a narrower scope than the cluster's
    would have no effect: it is an error.
    """
    node, config = request.node, request.config
    for item in request.session.items:
        if node in item.listchain() and _MARK in getattr(item, "fixturenames", ()):
            for where, _mark in item.iter_markers_with_node(_MARK):
                if where not in node.listchain():
                    pytest.fail(
                        f"the mark {_MARK} of {where.nodeid} has no effect, as the tests of a {request.scope} share a "
                        f"cluster: mark that, or set {_SCOPE}",
                        pytrace=False,
                    )
    options: dict[str, Any] = {"brokers": config.getini(_BROKERS), "features": config.getini(_FEATURES)}
    options |= dict(line.partition("=")[::2] for line in config.getini(_SETTINGS))
    options |= _marked(request, _MARK)
    own = {"brokers": _brokers(options.pop("brokers")), "features": options.pop("features")}
    own["security"] = options.pop("security", "plaintext")
    settings = {key.replace(".", "_"): str(value) for key, value in options.items()}
    _ensure_known(own["features"], settings)
    return own | settings


def _brokers(value: object) -> int:
    if not str(value).isdecimal() or int(str(value)) < 1:
        pytest.fail(f"{_MARK}(brokers={value!r}): expected a number from 1 on", pytrace=False)
    return int(str(value))


def _ensure_known(features: Any, settings: Mapping[str, str]) -> None:
    """Fails for features and settings that plog does not have: a test would be about something else than it says."""
    from core.cluster.description.feature_args import levels_of_new_cluster
    from plog.testing import ensure_obeyed

    with _failing():
        levels_of_new_cluster([features] if isinstance(features, str) else features, f"{_MARK}(features=..):")
        ensure_obeyed(settings, is_cluster=True, shown=f"{_MARK}({{}}=..)")
