"""Settings in ZooKeeper, and who hears of their changes when. `tests/interop/test_zookeeper.py` has a real one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from core.zookeeper.config_changes import ConfigChanges
from core.zookeeper.znodes import CONFIG_CHANGE_PREFIX, ConfigEntity, encode_config, encode_config_change
from core.zookeeper.zookeeper_session import ZooKeeperSession
from tests.support.fake_zookeeper import FakeZooKeeper
from tests.support.manual_clock import ManualClock

TOPIC = ConfigEntity("topics", "t")


async def test_who_catches_up_knows_what_no_watch_has_told_yet() -> None:
    zookeeper = FakeZooKeeper()
    session = zookeeper.session()
    await session.ensure_paths(["/config/changes", TOPIC.path])
    found: dict[ConfigEntity, Mapping[str, str]] = {}
    changes = ConfigChanges(cast(ZooKeeperSession, session), found.__setitem__, clock=ManualClock(0))
    await changes.start()
    for number, value in enumerate("21"):
        zookeeper.set(TOPIC.path, encode_config({"min.insync.replicas": value}))
        watches, zookeeper._watches = zookeeper._watches, []
        zookeeper.set(f"{CONFIG_CHANGE_PREFIX}{number:010}", encode_config_change(TOPIC))
        zookeeper._watches = watches
        assert found.get(TOPIC) != {"min.insync.replicas": value}
        await changes.catch_up()
        assert found[TOPIC] == {"min.insync.replicas": value}
    changes.stop()
