"""UpdateFeatures: finalizes another level of features, as transaction.version; all of them, or none."""

from __future__ import annotations

from core.broker.request_context import RequestContext
from core.broker.served_api import Needs, ServedApi
from core.broker.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.protocol.schema.update_features import (
    UPDATE_FEATURES,
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_UPGRADE_TYPES = (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE)
_FIRST_VERSION_WITH_TYPES = 1  # KIP-778


def handle(services: Services, request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    results = [_check(services, update, context.api_version) for update in request.feature_updates]
    refused = next((result for result in results if result.error_code), None)
    if refused is not None:
        return UpdateFeaturesResponse(error_code=refused.error_code, error_message=refused.error_message)
    if not request.validate_only:
        try:
            services.node.ensure_writable()
            services.controller.set_features({u.feature: u.max_version_level for u in request.feature_updates})
        except KafkaError as error:
            return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    return UpdateFeaturesResponse(error_message=None, results=results)


def _check(services: Services, update: FeatureUpdateKey, version: int) -> UpdatableFeatureResult:
    is_upgrade = update.upgrade_type == _UPGRADE if version >= _FIRST_VERSION_WITH_TYPES else not update.allow_downgrade
    try:
        if version >= _FIRST_VERSION_WITH_TYPES and update.upgrade_type not in _UPGRADE_TYPES:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"unknown upgrade type {update.upgrade_type}")
        services.controller.ensure_feature_may_be(update.feature, update.max_version_level, is_upgrade=is_upgrade)
    except KafkaError as error:
        return UpdatableFeatureResult(update.feature, error.code, error.message)
    return UpdatableFeatureResult(update.feature, ErrorCode.NONE, None)


SERVES = ServedApi(UPDATE_FEATURES, handle, Needs.NOTHING, needs_quorum=True)
