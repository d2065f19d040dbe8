"""DescribeAcls (API 29): the ACLs that match a filter."""

from __future__ import annotations

from core.protocol.message import Api, array, int8, int16, int32, message, string, struct


@message(api_key=29, valid="1-3", flexible="2+")
class DescribeAclsRequest:
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(versions="1+", default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@struct
class AclDescription:
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@struct
class DescribeAclsResource:
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(versions="1+", default=3)
    acls: list[AclDescription] = array(AclDescription)


@message(api_key=29, valid="1-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)


DESCRIBE_ACLS = Api(29, "DescribeAcls", DescribeAclsRequest, DescribeAclsResponse)
