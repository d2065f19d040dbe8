from __future__ import annotations

import json

import pytest

from core.broker.request_dispatcher import SERVED_APIS
from core.protocol.message import default_instance
from core.protocol.message_json import message_to_json


@pytest.mark.parametrize("api", SERVED_APIS, ids=lambda api: api.name)
def test_every_message_can_be_logged(api) -> None:
    for version in range(api.versions.first, api.versions.last + 1):
        for type_ in (api.request, api.response):
            assert isinstance(json.loads(json.dumps(message_to_json(default_instance(type_), version))), dict)
