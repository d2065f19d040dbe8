"""What brokers of Kafka 3.9 say to each other, in every version: our codec beside one that reads Kafka's
definitions.
"""

from __future__ import annotations

import random
from io import BytesIO
from typing import Any

import pytest

from core.common.topic_partition import uuid_text
from core.protocol.message_codec import codec
from core.protocol.message_json import message_to_json
from tests.support.answers.message_codec import DefinedCodec
from tests.support.messages import random_message
from tests.support.oracle import KAFKA39_VERSION, message_definition, requires_kafka39
from tests.support.protocol_document import BETWEEN_BROKERS
from tests.unit.protocol.test_message_codec import versions_of


def their_codec(cls: type, version: int) -> DefinedCodec:
    return DefinedCodec(message_definition("kafka-clients", "common/message", cls.__name__, KAFKA39_VERSION), version)


def as_json(value: Any) -> Any:
    """Gives their values as `message_to_json` does: names begin in lower case, and ids are in base64."""
    if isinstance(value, dict):
        return {
            name[0].lower() + name[1:]: uuid_text(bytes.fromhex(inner)) if name == "TopicId" else as_json(inner)
            for name, inner in value.items()
        }
    return [as_json(inner) for inner in value] if isinstance(value, list) else value


@requires_kafka39
@pytest.mark.java
@pytest.mark.longer
@pytest.mark.parametrize("cls", [cls for api in BETWEEN_BROKERS for cls in (api.request, api.response)])
def test_a_codec_of_kafkas_definitions_reads_and_writes_the_same(cls: type) -> None:
    rnd = random.Random(cls.__name__)
    for version in versions_of(cls):
        theirs = their_codec(cls, version)
        for _ in range(8):
            original = random_message(cls, version, rnd)
            encoded = codec(cls, version).encode(original)
            decoded, end = codec(cls, version).decode(memoryview(encoded + b"after"))
            assert (decoded, end) == (original, len(encoded))
            values = theirs.decode(BytesIO(encoded))
            assert theirs.encode(values) == encoded
            assert as_json(values) == message_to_json(original, version)
