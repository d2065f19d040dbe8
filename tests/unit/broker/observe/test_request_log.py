from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from core.broker.observe.request_log import _without_secrets, log_request
from core.broker.requests.client_session import Session
from core.broker.requests.request_context import RequestContext
from core.common.config_def import ConfigResourceType
from core.protocol.schema.configs import (
    INCREMENTAL_ALTER_CONFIGS,
    ChangedConfig,
    ChangedResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.for_each import for_each

BROKER, TOPIC, LOGGER = ConfigResourceType.BROKER, ConfigResourceType.TOPIC, ConfigResourceType.BROKER_LOGGER


def test_values_that_may_be_secrets_are_hidden(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "plog.request")
    settings = [
        (BROKER, "listener.name.tls.ssl.keystore.password", "s3cret"),
        (BROKER, "log.retention.ms", "7"),
        (TOPIC, "retention.ms", "8"),
        (TOPIC, "follower.secret", "s3cret"),
        (LOGGER, "plog.request", "DEBUG"),
        (99, "retention.ms", "s3cret"),
    ]
    resources = [ChangedResource(type_, "1", [ChangedConfig(name, 0, value)]) for type_, name, value in settings]
    request = IncrementalAlterConfigsRequest(resources)
    context = RequestContext(api_version=1, client_id="c", session=Session(client_host="h", local_host="l"))
    log_request(INCREMENTAL_ALTER_CONFIGS, 1, context, request, IncrementalAlterConfigsResponse(), 0.5)
    assert "s3cret" not in caplog.text
    logged = json.loads(caplog.messages[0].partition(":")[2])["request"]["resources"]
    values = [resource["configs"][0]["value"] for resource in logged]
    assert values == ["[hidden]", "7", "8", "[hidden]", "DEBUG", "[hidden]"]
    assert "s3cret" not in str(caplog.records[0].__dict__["fields"])
    assert request.resources[0].configs[0].value == "s3cret", "what is logged is a copy"


@for_each(
    "message, expected",
    [
        ({"authBytes": "czNjcmV0"}, {"authBytes": "[hidden]"}),
        ({"deletions": [], "upsertions": [{"name": "a", "salt": "x", "saltedPassword": "y"}]},
         {"deletions": [], "upsertions": [{"name": "a", "salt": "[hidden]", "saltedPassword": "[hidden]"}]}),
        ({"topics": [{"name": "t", "configs": [{"name": "x", "value": "y"}, {"name": "segment.ms", "value": "1"}]}]},
         {"topics": [{"name": "t",
                      "configs": [{"name": "x", "value": "[hidden]"}, {"name": "segment.ms", "value": "1"}]}]}),
        ({"results": [{"resourceType": 4, "configs": [{"name": "x", "value": None, "synonyms": [{"value": "y"}]}]}]},
         {"results": [{"resourceType": 4,
                       "configs": [{"name": "x", "value": None, "synonyms": [{"value": "[hidden]"}]}]}]}),
        ({"topics": [{"configs": None}]}, {"topics": [{"configs": None}]}),
    ],
)  # fmt: skip
def test_secrets_of_other_messages(message: Any, expected: Any) -> None:
    assert _without_secrets(message) == expected
