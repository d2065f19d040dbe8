"""DeleteTopics (API 20): by name, or from version 6 by id."""

from __future__ import annotations

from core.protocol.message import Api, array, int16, int32, message, string, struct, uuid


@struct
class DeleteTopicState:
    name: str | None = string("6+", None, nullable="6+")
    topic_id: bytes = uuid("6+")


@message(api_key=20, valid="1-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array("string", "0-5", ignorable=True)
    timeout_ms: int = int32()


@struct
class DeletableTopicResult:
    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", None, nullable="5+", ignorable=True)


@message(api_key=20, valid="1-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


DELETE_TOPICS = Api(20, "DeleteTopics", DeleteTopicsRequest, DeleteTopicsResponse)
