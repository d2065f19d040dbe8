"""Finalizes levels of features, as the controller, and says which brokers can work at them (KIP-584).

A level is finalized if all registered brokers support it. The controller passes over a later broker that does not, as
if it were not there: that broker gets no requests, leads nothing and gets no replicas.

Source: kafka.controller.KafkaController of Kafka 3.9 (setupFeatureVersioning, partitionOnFeatureCompatibility,
processFeatureUpdates), with one difference: the updates of a request are done together, or none of them, as Kafka 4
does it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from core.cluster.controller.controller_context import LiveBroker
from core.cluster.controller.controller_writes import NOT_WRITTEN, Decision, FeatureWrite
from core.cluster.image.feature_levels import MEMBERS_FEATURES, FeatureUpdate, ensure_may_be, refusal, unsupported
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError

_log = logging.getLogger("plog.controller")


class FeatureControl:
    """Owned by the controller's task."""

    def __init__(self) -> None:
        self.finalized: Mapping[str, int] = {}
        """The finalized levels in ZooKeeper; a feature of level 0 is not among them."""
        self._version = NOT_WRITTEN
        self._problem = ""
        self._passed_over: set[tuple[int, int]] = set()
        """The logged brokers that the controller passes over, with their epochs."""

    def begin(self, finalized: Mapping[str, int] | None, version: int) -> Decision[None]:
        """Starts from the levels in ZooKeeper, in that version. `finalized` is None if ZooKeeper has no levels, or
        features are disabled: then the controller enables features, with none finalized.
        """
        self._version = version
        if finalized is None:
            yield from self._write({})
        else:
            self.finalized = finalized

    def leave_alone(self, problem: str) -> None:
        """Treats nothing as finalized, and writes nothing: the levels in ZooKeeper cannot be read."""
        self._problem = problem

    def compatible(self, brokers: Mapping[int, LiveBroker]) -> dict[int, LiveBroker]:
        """Returns the brokers that can work at all finalized levels; logs the others."""
        found: dict[int, LiveBroker] = {}
        passed_over = set()
        for broker_id, broker in brokers.items():
            lacking = unsupported(self.finalized, broker.features)
            if not lacking:
                found[broker_id] = broker
                continue
            passed_over.add((broker_id, broker.epoch))
            if (broker_id, broker.epoch) not in self._passed_over:
                what = ", ".join(f"{name} {level}" for name, level in lacking.items())
                _log.error(
                    "broker %d is passed over: it does not support %s, which the cluster has finalized. "
                    "Stop it, or lower these levels (plog cluster features --downgrade)",
                    *(broker_id, what),
                )
        self._passed_over = passed_over
        return found

    def ensure_may_be(self, updates: Sequence[FeatureUpdate], brokers: Mapping[int, LiveBroker]) -> None:
        """Raises KafkaError(INVALID_UPDATE_VERSION) unless all can be finalized with these brokers registered, or
        FEATURE_UPDATE_FAILED if the finalized levels are unknown.
        """
        if self._problem:
            raise KafkaError(ErrorCode.FEATURE_UPDATE_FAILED, self._problem)
        for update in updates:
            for broker_id, broker in brokers.items():
                if unsupported({update.name: update.level}, broker.features):
                    lowest, highest = broker.features.get(update.name, (0, 0))
                    raise refusal(update, f"broker {broker_id} supports levels {lowest} to {highest}")
            ensure_may_be(update, self.finalized.get(update.name, 0), MEMBERS_FEATURES)

    def update(self, updates: Sequence[FeatureUpdate]) -> Decision[None]:
        """Writes checked updates, unless all levels are so already."""
        levels = {**self.finalized, **{update.name: update.level for update in updates}}
        finalized = {name: level for name, level in levels.items() if level}
        if finalized != self.finalized:
            yield from self._write(finalized)

    def _write(self, finalized: Mapping[str, int]) -> Decision[None]:
        (self._version,) = yield [FeatureWrite(finalized, self._version)]
        self.finalized = finalized
        what = ", ".join(f"{name} {level}" for name, level in finalized.items())
        _log.info("finalized features: %s", what or "none")
