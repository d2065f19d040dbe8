"""Feature levels as people write them (`FEATURE=LEVEL`, `FEATURE`, or a word for several), and their meaning for a
cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from core.cluster.description.cluster_description import ClusterDescription
from core.cluster.image.feature_levels import MEMBERS_FEATURES, FeatureUpdate, Levels, UpgradeType
from core.common.errors import UsageError
from core.common.printable import did_you_mean

ALL = "all"
"""Every feature, each at the highest level that all brokers support."""

NONE = "none"
"""No feature."""

_HIGHEST_LEVEL = (1 << 15) - 1
"""The limit of UpdateFeatures, which has an int16."""


class PlannedUpdate(NamedTuple):
    """A level to finalize in place of another. 0 is the level of a feature that is not finalized."""

    update: FeatureUpdate
    before: int

    @property
    def is_needed(self) -> bool:
        return self.update.level != self.before


class FeatureArg(NamedTuple):
    """`level` is None for the highest that all brokers support; the name may be `ALL` then."""

    name: str
    level: int | None
    way: UpgradeType


def parse_wanted(upgrades: Iterable[str], downgrades: Iterable[str], *, is_unsafe: bool) -> list[FeatureArg]:
    """Parses the levels to raise and to lower. Raises UsageError for text that is neither, a level that is missing or
    not a number, and a feature that is named twice.
    """
    down = UpgradeType.UNSAFE_DOWNGRADE if is_unsafe else UpgradeType.SAFE_DOWNGRADE
    wanted = [FeatureArg(*_parse(text, "--upgrade"), UpgradeType.UPGRADE) for text in upgrades]
    for text in downgrades:
        name, level = _parse(text, "--downgrade")
        if level is None:
            raise UsageError(f"--downgrade {text}: expected FEATURE=LEVEL", hint="level 0 gives the feature up")
        wanted.append(FeatureArg(name, level, down))
    names = [one.name for one in wanted]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name} is named twice")
    if ALL in names and len(names) > 1:
        raise UsageError(f"--upgrade {ALL} stands for all features, and is given alone")
    return wanted


def _parse(text: str, option: str) -> tuple[str, int | None]:
    name, separator, level = (part.strip() for part in text.partition("="))
    if not name or (name in (ALL, NONE) and separator):
        raise UsageError(f"{option} {text}: expected FEATURE=LEVEL", hint=f"{option} transaction.version=2")
    if not separator:
        return name, None
    if not (level.isascii() and level.isdecimal() and len(level) < 6 and int(level) <= _HIGHEST_LEVEL):
        raise UsageError(f"{option} {text}: {level or 'nothing'} is no level, expected a number from 0 on")
    return name, int(level)


# --- what a cluster supports


def features_of(cluster: ClusterDescription) -> list[str]:
    """Returns the names of all features that brokers support, or that are finalized."""
    known = [broker.features for broker in cluster.brokers if broker.features is not None]
    return sorted({name for levels in (*known, cluster.features) for name in levels})


def common_levels(cluster: ClusterDescription) -> Levels:
    """Returns the levels that all brokers support that report any. A broker that does not know a feature supports only
    level 0. The lowest level is above the highest if no level is supported by all.
    """
    known = [broker.features for broker in cluster.brokers if broker.features is not None]
    found = {}
    for name in features_of(cluster):
        ranges = [levels.get(name, (0, 0)) for levels in known]
        found[name] = max(low for low, _ in ranges), min(high for _, high in ranges)
    return found


def plan_updates(wanted: Sequence[FeatureArg], cluster: ClusterDescription) -> list[PlannedUpdate]:
    """Returns the updates to make, in the order of the names. A feature that already has its level stays in, unless it
    came with `all`. Raises UsageError for a feature that no broker knows, if its level is left to the brokers.
    """
    common = common_levels(cluster)
    planned = []
    for one in wanted:
        if one.name == ALL:
            highest = ((name, high) for name, (low, high) in common.items() if low <= high)
            planned += [
                _planned(name, high, one.way, cluster) for name, high in highest if high > _before(name, cluster)
            ]
            continue
        if one.level is None and one.name not in common:
            known = ", ".join(common) or "none"
            raise UsageError(
                f"no broker knows the feature {one.name!r}; those that are known: {known}",
                hint=did_you_mean(one.name, common),
            )
        level = one.level if one.level is not None else max(common[one.name][1], _before(one.name, cluster))
        planned.append(_planned(one.name, level, one.way, cluster))
    return sorted(planned, key=lambda one: one.update.name)


def _planned(name: str, level: int, way: UpgradeType, cluster: ClusterDescription) -> PlannedUpdate:
    return PlannedUpdate(FeatureUpdate(name, level, way), _before(name, cluster))


def _before(name: str, cluster: ClusterDescription) -> int:
    return cluster.features.get(name, 0)


# --- a new cluster


def levels_of_new_cluster(wanted: Iterable[str], option: str = "--feature") -> Mapping[str, int]:
    """Returns the levels that a new cluster of plogs finalizes: the highest that they support, except those named as
    FEATURE=LEVEL; only those after the word `none`. Raises UsageError for levels that plog does not support: its
    message names the `option`.
    """
    levels = {name: highest for name, (_, highest) in MEMBERS_FEATURES.items()}
    named = [_parse(text, option) for text in wanted]
    if (NONE, None) in named:
        levels = {}
    for name, level in named:
        if (name, level) == (NONE, None):
            continue
        lowest, highest = MEMBERS_FEATURES.get(name, (0, -1))
        if level is None or not lowest <= level <= highest:
            supported = ", ".join(f"{one} {low} to {high}" for one, (low, high) in MEMBERS_FEATURES.items())
            what = name if level is None else f"{name}={level}"
            raise UsageError(f"{option} {what}: expected {NONE}, or FEATURE=LEVEL of {supported}")
        levels[name] = level
    return {name: level for name, level in levels.items() if level}
