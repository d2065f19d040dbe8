"""What a controller finalizes, which brokers can work at it, and which level may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import pytest

from core.cluster.controller.controller_context import LiveBroker
from core.cluster.controller.controller_writes import NOT_WRITTEN, Decision, FeatureWrite, Write
from core.cluster.controller.feature_control import FeatureControl
from core.cluster.image.feature_levels import FeatureUpdate, UpgradeType
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.protocol.schema.control_request import UpdateMetadataBroker
from tests.support.for_each import for_each

T = TypeVar("T")

UP, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE
PLOGS = {"group.version": (0, 1), "transaction.version": (0, 2)}
NOTHING: Mapping[str, tuple[int, int]] = {}


def broker(broker_id: int, features: Mapping[str, tuple[int, int]] = PLOGS, epoch: int = 1) -> LiveBroker:
    return LiveBroker(epoch, UpdateMetadataBroker(id=broker_id), features, epoch)


def written_by(decision: Decision[None]) -> list[Write]:
    """What it writes; each write is kept in the next version."""
    found: list[Write] = []
    try:
        writes = next(decision)
        while True:
            found += writes
            writes = decision.send([write.version + 1 for write in writes if isinstance(write, FeatureWrite)])
    except StopIteration:
        return found


def in_office(**finalized: int) -> FeatureControl:
    control = FeatureControl()
    assert written_by(control.begin({f"{name}.version": level for name, level in finalized.items()}, 4)) == []
    return control


@for_each("version", [NOT_WRITTEN, 7])
def test_what_is_missing_or_disabled_is_written_without_features(version: int) -> None:
    control = FeatureControl()
    assert written_by(control.begin(None, version)) == [FeatureWrite({}, version)]
    assert control.finalized == {}


def test_levels_are_written_together_upon_what_was_written_before() -> None:
    control = in_office(group=1)
    updates = [FeatureUpdate("transaction.version", 2, UP), FeatureUpdate("group.version", 0, UNSAFE)]
    assert written_by(control.update(updates)) == [FeatureWrite({"transaction.version": 2}, 4)]
    assert control.finalized == {"transaction.version": 2}
    assert written_by(control.update(updates)) == []
    again = [FeatureUpdate("group.version", 1, UP)]
    assert written_by(control.update(again)) == [FeatureWrite({"transaction.version": 2, "group.version": 1}, 5)]


def test_a_level_counts_once_it_is_written_down() -> None:
    control = in_office(group=1)
    decision = control.update([FeatureUpdate("transaction.version", 2, UP)])
    next(decision)
    assert control.finalized == {"group.version": 1}
    decision.close()  # it is out of office
    assert control.finalized == {"group.version": 1}


@for_each(
    "update, problem",
    [
        (FeatureUpdate("group.version", 1, UP), None),
        (FeatureUpdate("transaction.version", 2, UP), None),
        (FeatureUpdate("transaction.version", 1, UP), None),
        (FeatureUpdate("transaction.version", 1, SAFE), None),
        (FeatureUpdate("transaction.version", 0, UP), "it is 1, which a downgrade only lowers"),
        (FeatureUpdate("transaction.version", 0, SAFE), None),
        (FeatureUpdate("transaction.version", 0, UNSAFE), None),
        (FeatureUpdate("transaction.version", 2, UNSAFE), "it is 1, which an upgrade only raises"),
        (FeatureUpdate("transaction.version", 3, UP), "broker 1 supports levels 0 to 2"),
        (FeatureUpdate("transaction.version", -1, SAFE), "broker 1 supports levels 0 to 2"),
        (FeatureUpdate("metadata.version", 20, UP), "broker 1 supports levels 0 to 0"),
    ],
)
def test_which_level_may_follow(update: FeatureUpdate, problem: str | None) -> None:
    control = in_office(transaction=1)
    brokers = {1: broker(1), 2: broker(2)}
    if problem is None:
        control.ensure_may_be([update], brokers)
        return
    with pytest.raises(KafkaError) as refusal:
        control.ensure_may_be([update], brokers)
    assert refusal.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert refusal.value.message == f"{update.name} can't be set to {update.level}: {problem}"


def test_each_broker_that_is_registered_must_support_the_level() -> None:
    control = in_office()
    update = FeatureUpdate("transaction.version", 2, UP)
    for features, supported in ((NOTHING, "0 to 0"), ({"transaction.version": (0, 1)}, "0 to 1")):
        with pytest.raises(KafkaError, match=f"can't be set to 2: broker 7 supports levels {supported}"):
            control.ensure_may_be([update], {1: broker(1), 7: broker(7, features)})


def test_brokers_that_lack_a_feature_are_passed_over_and_each_life_of_them_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    control = in_office(group=1, transaction=2)
    brokers = {1: broker(1), 7: broker(7, NOTHING), 8: broker(8, {"group.version": (0, 1)})}
    for _ in range(2):
        assert control.compatible(brokers) == {1: brokers[1]}
    assert caplog.text.count("broker 7 is passed over: it does not support group.version 1, transaction.version 2") == 1
    assert caplog.text.count("broker 8 is passed over: it does not support transaction.version 2") == 1
    control.compatible({**brokers, 7: broker(7, NOTHING, epoch=2)})
    assert caplog.text.count("broker 7 is passed over") == 2
    assert in_office().compatible(brokers) == brokers
