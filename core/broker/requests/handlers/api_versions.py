"""ApiVersions: the APIs and versions of this broker, and the finalized features of its metadata.

A client that names another cluster or broker was misdirected, by a load balancer or a reused address: it must bootstrap
again (KIP-1242).
"""

from __future__ import annotations

import re
from typing import Any

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.cluster.image.feature_levels import MEMBERS_FEATURES, SUPPORTED_FEATURES
from core.common.error_code import ErrorCode
from core.protocol.message import Api, VersionRange
from core.protocol.schema.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from core.protocol.schema.produce import PRODUCE

_FIRST_VERSION_WITH_CLIENT_SOFTWARE = 3  # KIP-511
_FIRST_VERSION_WITH_LEVEL_0 = 4  # KAFKA-17011: clients before can't read a range of levels that begins at 0
_ANY_NODE = -1
_ANY_BROKER = None, _ANY_NODE
_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@serves(API_VERSIONS)
def handle(services: Services, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.api_version >= _FIRST_VERSION_WITH_CLIENT_SOFTWARE and not (
        _CLIENT_SOFTWARE.fullmatch(request.client_software_name)
        and _CLIENT_SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    meant = request.cluster_id, request.node_id
    if meant not in (_ANY_BROKER, (services.node.cluster_id, services.node.node_id)):
        is_whole = request.cluster_id is not None and request.node_id != _ANY_NODE
        return ApiVersionsResponse(ErrorCode.REBOOTSTRAP_REQUIRED if is_whole else ErrorCode.INVALID_REQUEST)
    api_keys = [advertised(api, versions) for api, versions in services.served_apis.items()]
    membership = services.membership
    supported = SUPPORTED_FEATURES if membership is None else MEMBERS_FEATURES
    epoch = services.controller.broker_epoch if membership is None else membership.controller.features_epoch
    lowest = 0 if context.api_version >= _FIRST_VERSION_WITH_LEVEL_0 else 1
    return ApiVersionsResponse(
        api_keys=api_keys,
        supported_features=[
            SupportedFeatureKey(name, low, high) for name, (low, high) in supported.items() if low >= lowest
        ],
        finalized_features_epoch=epoch,
        finalized_features=[
            FinalizedFeatureKey(name, level, level)
            for name, level in services.image.features.items()
            if name in supported
        ],
    )


def unsupported_version() -> ApiVersionsResponse:
    """Returns the answer, in version 0, to a version of ApiVersions that is not known here (KIP-511)."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[advertised(API_VERSIONS, API_VERSIONS.versions)]
    )


def advertised(api: Api[Any, Any], versions: VersionRange) -> ApiVersion:
    """Returns an API's version range. Produce begins at 0, as with Kafka: librdkafka before 2.8 stops compressing
    otherwise (KAFKA-18659).
    """
    first = 0 if api.key == PRODUCE.key else versions.first
    return ApiVersion(api.key, first, versions.last)
