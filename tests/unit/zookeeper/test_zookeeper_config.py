from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from core.common.endpoint import Endpoint
from core.common.errors import AccessError, UsageError
from core.security.client_security import Tls, TrustStore
from core.security.secret import Secret
from core.zookeeper.zookeeper_config import ZooKeeperConfig, ZooKeeperLogin, parse_zookeeper_connect
from core.zookeeper.zookeeper_session import ZooKeeperSession
from tests.support.for_each import for_each


@for_each(
    "text, servers, chroot",
    [
        ("zk1", [("zk1", 2181)], ""),
        ("zk1:1,zk2:2/kafka", [("zk1", 1), ("zk2", 2)], "/kafka"),
        (" [::1]:5 , :6/a/b/ ", [("::1", 5), ("127.0.0.1", 6)], "/a/b"),
        ("h:1/", [("h", 1)], ""),
    ],
)
def test_servers_and_chroot(text: str, servers: list[tuple[str, int]], chroot: str) -> None:
    assert parse_zookeeper_connect(text) == (tuple(Endpoint(*one) for one in servers), chroot)


@for_each(
    "text, problem",
    [
        ("", "no ZooKeeper is named"),
        ("/kafka", "no ZooKeeper is named"),
        ("h:x", "is no HOST:PORT"),
        ("h:0", "no ZooKeeper can be at h:0"),
        ("x y:1", "no ZooKeeper can be at x y:1"),
        ("h:1/a,g:2/a", "is no chroot"),
        ("h:1/a//b", "is no chroot"),
        ("h:1/a/../b", "is no chroot"),
    ],
)
def test_texts_that_name_none(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_zookeeper_connect(text)


def test_a_config_reads_as_people_write_it_and_hides_the_password() -> None:
    config = ZooKeeperConfig(*parse_zookeeper_connect("a:1,b:2/c"), digest=ZooKeeperLogin("me", Secret("geheim")))
    assert str(config) == "a:1,b:2/c"
    assert "geheim" not in repr(config)


async def _open(config: ZooKeeperConfig) -> None:
    await ZooKeeperSession(config).open()


def test_a_tls_file_that_is_missing_is_named(tmp_path: Path) -> None:
    pytest.importorskip("kazoo", reason="the extra cluster is not installed")
    config = ZooKeeperConfig((Endpoint("127.0.0.1", 1),), tls=Tls(TrustStore(str(tmp_path / "ca.pem"))))
    with pytest.raises(UsageError, match=r"could not read .*ca\.pem: no such file"):
        asyncio.run(_open(config))


def test_without_kazoo_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(AccessError, match="ZooKeeper needs the package kazoo") as refused:
        asyncio.run(_open(ZooKeeperConfig((Endpoint("127.0.0.1", 1),))))
    assert refused.value.hint == "pip install 'plog-kafka[cluster]'"
