"""Levels of features as people name them, and what they come to in a cluster."""

from __future__ import annotations

import pytest

from core.cluster.description.cluster_description import BrokerDescription, ClusterDescription
from core.cluster.description.feature_args import common_levels, levels_of_new_cluster, parse_wanted, plan_updates
from core.cluster.image.feature_levels import Levels, UpgradeType
from core.common.errors import UsageError
from tests.support.for_each import for_each

UP, DOWN, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE
PLOG = {"group.version": (0, 1), "transaction.version": (0, 2)}


def cluster(*brokers: Levels | None, **finalized: int) -> ClusterDescription:
    """A feature's name is its first word here."""
    described = [BrokerDescription(number, {}, features=levels) for number, levels in enumerate(brokers, start=1)]
    return ClusterDescription("id", 1, described, {f"{name}.version": level for name, level in finalized.items()})


def planned(found: ClusterDescription, *upgrades: str, downgrades: tuple[str, ...] = ()) -> list[tuple[str, int, int]]:
    """The name of each feature with its level before and after."""
    wanted = parse_wanted(upgrades, downgrades, is_unsafe=False)
    return [(one.update.name, one.before, one.update.level) for one in plan_updates(wanted, found)]


def test_what_all_brokers_support_is_supported() -> None:
    found = cluster({"a": (0, 3), "b": (1, 2)}, {"a": (1, 2), "b": (2, 9), "c": (0, 1)}, None)
    assert common_levels(found) == {"a": (1, 2), "b": (2, 2), "c": (0, 0)}
    unknown_to_one = cluster({"metadata.version": (7, 30)}, {})
    assert common_levels(unknown_to_one) == {"metadata.version": (7, 0)}, "it works at level 0 alone"


def test_all_raises_what_all_brokers_support_and_nothing_else() -> None:
    assert planned(cluster(PLOG, PLOG), "all") == [("group.version", 0, 1), ("transaction.version", 0, 2)]
    assert planned(cluster(PLOG, PLOG, group=1, transaction=1), "all") == [("transaction.version", 1, 2)]
    assert planned(cluster(PLOG, {"transaction.version": (0, 1)}), "all") == [("transaction.version", 0, 1)]
    assert planned(cluster(PLOG, {}), "all") == []
    assert planned(cluster({"metadata.version": (7, 30)}, {}), "all") == []


def test_a_feature_without_a_level_gets_the_highest_and_is_never_lowered() -> None:
    assert planned(cluster(PLOG, PLOG), "transaction.version") == [("transaction.version", 0, 2)]
    assert planned(cluster(PLOG, {}, transaction=1), "transaction.version") == [("transaction.version", 1, 1)]
    with pytest.raises(UsageError, match=r"no broker knows the feature 'groups\.version'") as refusal:
        planned(cluster(PLOG), "groups.version")
    assert refusal.value.hint == "did you mean group.version?"


def test_levels_that_are_named_are_the_controllers_to_judge() -> None:
    found = cluster(PLOG, transaction=2)
    assert planned(found, "new=9", downgrades=("transaction.version=0",)) == [
        ("new", 0, 9), ("transaction.version", 2, 0),
    ]  # fmt: skip


def test_which_way_a_level_goes_is_said_by_the_option() -> None:
    ways = [one.way for one in parse_wanted(["a=1", " b "], ["c = 0"], is_unsafe=False)]
    assert ways == [UP, UP, DOWN]
    (unsafe,) = parse_wanted([], ["c=0"], is_unsafe=True)
    assert unsafe == ("c", 0, UNSAFE)


@for_each("text", ["", "=1", "a=", "a=-1", "a=1.5", "a=²", "a=32768", "a=99999999", "all=1", "a=b=c"])
def test_what_is_no_level(text: str) -> None:
    for upgrades, downgrades in (([text], []), ([], [text])):
        with pytest.raises(UsageError, match="expected"):
            parse_wanted(upgrades, downgrades, is_unsafe=False)
    with pytest.raises(UsageError, match="expected"):
        levels_of_new_cluster([text])


def test_features_that_are_named_twice() -> None:
    with pytest.raises(UsageError, match="a is named twice"):
        parse_wanted(["a=1"], ["a=0"], is_unsafe=False)
    with pytest.raises(UsageError, match="is given alone"):
        parse_wanted(["all", "a=1"], [], is_unsafe=False)


def test_a_new_cluster_finalizes_the_highest_levels_unless_others_are_named() -> None:
    assert levels_of_new_cluster([]) == {"group.version": 1, "transaction.version": 2}
    assert levels_of_new_cluster(["transaction.version=1"]) == {"group.version": 1, "transaction.version": 1}
    assert levels_of_new_cluster(["group.version=0"]) == {"transaction.version": 2}
    assert levels_of_new_cluster(["none"]) == {}
    assert levels_of_new_cluster(["transaction.version=2", "none"]) == {"transaction.version": 2}
    for text in ("group.version", "group.version=2", "metadata.version=30", "all"):
        with pytest.raises(UsageError, match=r"expected none, or FEATURE=LEVEL of group.version 0 to 1, transaction"):
            levels_of_new_cluster([text])
