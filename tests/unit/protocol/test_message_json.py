from __future__ import annotations

import json

from core.broker.request_dispatcher import SERVED_APIS
from core.protocol.message import default_instance
from core.protocol.message_json import message_to_json


def test_every_message_can_be_logged() -> None:
    for api in SERVED_APIS:
        for version in range(api.versions.first, api.versions.last + 1):
            for type_ in (api.request, api.response):
                logged = json.loads(json.dumps(message_to_json(default_instance(type_), version)))
                assert isinstance(logged, dict), (api.name, version)
