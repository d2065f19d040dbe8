"""UpdateFeatures (API 57): finalizes another level of a feature, as transaction.version (KIP-584)."""

from __future__ import annotations

from core.protocol.message import Api, array, boolean, int8, int16, int32, message, string, struct


@struct
class FeatureUpdateKey:
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", 1)


@message(api_key=57, valid="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: int = int32("0+", 60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+", False)


@struct
class UpdatableFeatureResult:
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(api_key=57, valid="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)


UPDATE_FEATURES = Api(57, "UpdateFeatures", UpdateFeaturesRequest, UpdateFeaturesResponse)
