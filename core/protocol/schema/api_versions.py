"""ApiVersions (API 18): what the broker speaks (KIP-35), its features (KIP-584), and whether a client has reached the
broker that it meant (KIP-1242).
"""

from __future__ import annotations

from core.protocol.message import Api, Message, Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, api_key=18, valid="0-5", flexible="3+"):
    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)
    cluster_id: str | None = string("5+", None, nullable="5+", ignorable=True)
    node_id: int = int32("5+", -1, ignorable=True)


class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Struct):
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class ApiVersionsResponse(Message, api_key=18, valid="0-5", flexible="3+"):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tagged="3+", tag=0, ignorable=True)
    finalized_features_epoch: int = int64("3+", -1, tagged="3+", tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tagged="3+", tag=2, ignorable=True)
    zk_migration_ready: bool = boolean("3+", tagged="3+", tag=3, ignorable=True)


API_VERSIONS = Api(ApiVersionsRequest, ApiVersionsResponse)
