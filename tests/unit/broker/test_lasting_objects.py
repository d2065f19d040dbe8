"""The collector of cycles does not look at what stays, and what goes does not need it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from core.broker.broker_server import LastingObjects, without_collector
from core.common.errors import AccessError
from tests.support.broker import SteeredNode, add_topic, delete_topic, produce
from tests.support.logs import make_batch


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """As it was, and off: what goes, goes without it."""
    gc.collect()
    gc.disable()
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.enable()


def test_partitions_are_set_aside_when_they_came(broker: SteeredNode) -> None:
    lasting = LastingObjects(broker.services.replicas)
    first = gc.get_freeze_count()
    lasting.step()
    before = gc.get_freeze_count()
    assert before > first
    add_topic(broker)
    log = broker.services.replicas.find("t", 0).log
    assert any(found is log for found in gc.get_objects())
    lasting.step()
    assert gc.get_freeze_count() > before
    assert not any(found is log for found in gc.get_objects()), "the collector does not look at it any more"


def test_what_comes_when_nothing_lasting_came_is_not(broker: SteeredNode) -> None:
    lasting = LastingObjects(broker.services.replicas)
    add_topic(broker)
    lasting.step()
    made: list[list[int]] = [[]]
    lasting.step()
    assert any(found is made for found in gc.get_objects())


def test_what_was_set_aside_goes_with_its_topic(broker: SteeredNode) -> None:
    add_topic(broker)
    assert produce(broker, make_batch(b"v")).error_code == 0
    LastingObjects(broker.services.replicas).step()
    log = weakref.ref(broker.services.replicas.find("t", 0).log)
    delete_topic(broker, "t")
    add_topic(broker, "u")
    assert produce(broker, make_batch(b"v"), "u").error_code == 0  # the short way knows the last topics until then
    assert log() is None


def test_the_collector_rests_while_a_directory_is_opened() -> None:
    gc.enable()
    with without_collector():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(AccessError), without_collector():
        raise AccessError("could not read it", where="it")
    assert gc.isenabled()
