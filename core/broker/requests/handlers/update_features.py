"""UpdateFeatures: finalizes other levels of features, such as transaction.version; all of them, or none.

In a cluster the controller answers when its own write has come back to it (`controller_features.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from core.broker.controller.controller_features import ControllerFeatures
from core.broker.requests.handlers.controller_request import find_control
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.cluster.image.feature_levels import FeatureUpdate, UpgradeType
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.coordinator.consumer_group import ConsumerGroup
from core.protocol.schema.update_features import (
    UPDATE_FEATURES,
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_FIRST_VERSION_WITH_TYPES = 1  # KIP-778


def handle(
    services: Services, request: UpdateFeaturesRequest, context: RequestContext
) -> UpdateFeaturesResponse | Pending[UpdateFeaturesResponse]:
    try:
        updates = [_read(update, context.api_version) for update in request.feature_updates]
        if services.membership is not None:
            return _update_cluster(services, request, updates)
        for update in updates:
            services.controller.ensure_feature_may_be(update)
        if not request.validate_only:
            services.node.ensure_writable()
            services.controller.set_features({update.name: update.level for update in updates})
    except KafkaError as error:
        return _answer(request, error)
    return _answer(request, None)


def _read(update: FeatureUpdateKey, version: int) -> FeatureUpdate:
    """Raises KafkaError(INVALID_UPDATE_VERSION) for an unknown upgrade type."""
    if version < _FIRST_VERSION_WITH_TYPES:
        way = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    elif update.upgrade_type in tuple(UpgradeType):
        way = UpgradeType(update.upgrade_type)
    else:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"unknown upgrade type {update.upgrade_type}")
    return FeatureUpdate(update.feature, update.max_version_level, way)


def _update_cluster(
    services: Services, request: UpdateFeaturesRequest, updates: Sequence[FeatureUpdate]
) -> Pending[UpdateFeaturesResponse]:
    """Raises KafkaError(NOT_CONTROLLER) if this broker is not the controller."""
    control = find_control(services)
    if control is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    features = ControllerFeatures(
        control, services.controller, partial(_find_own_groups, services), node_id=services.node.node_id
    )
    done = features.update(updates, validate_only=request.validate_only, timeout_ms=request.timeout_ms)
    return done.map(partial(_answer, request))


def _find_own_groups(services: Services) -> list[str] | ErrorCode:
    """Returns the groups of the consumer protocol that this broker coordinates, or why it does not know them."""
    groups = services.groups.groups
    return services.group_log.load_all() or [id_ for id_, group in groups.items() if isinstance(group, ConsumerGroup)]


def _answer(request: UpdateFeaturesRequest, error: KafkaError | None) -> UpdateFeaturesResponse:
    if error is not None:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    results = [UpdatableFeatureResult(update.feature, ErrorCode.NONE, None) for update in request.feature_updates]
    return UpdateFeaturesResponse(error_message=None, results=results)


SERVES = ServedApi(UPDATE_FEATURES, handle)
