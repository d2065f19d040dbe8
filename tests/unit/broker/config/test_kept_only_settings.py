"""Settings that plog keeps and does not act on say so, and no others do."""

from __future__ import annotations

import logging
import re
from contextlib import closing
from itertools import chain
from pathlib import Path

import pytest

from core.broker.config.broker_settings import BROKER_CONFIG, BrokerSettings
from core.broker.config.group_configs import GROUP_CONFIG
from core.broker.requests.config_resources import CLIENT_METRICS_CONFIG
from core.common.config_def import ConfigDef
from core.files.log_config import INTERNAL_KEYS, SERVER_KEYS, TOPIC_CONFIG
from core.protocol.schema.configs import (
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from core.protocol.schema.topic_changes import CREATE_TOPICS, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from core.security.client_settings import is_heeded
from tests.support.broker import SteeredNode, add_topic, ask, open_broker
from tests.support.for_each import for_each
from tests.support.golden import SAMPLE_DATA
from tests.support.requests import changes_of

ROOT = SAMPLE_DATA.parent
TOPIC, GROUP = 2, 32
SENTENCE = " plog keeps this setting and does not act on it."


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    paths = chain.from_iterable((ROOT / folder).rglob("*.py") for folder in ("core", "cli", "plog"))
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def is_read(key: str, sources: dict[str, str]) -> bool:
    """Whether anything reads an attribute of that name; what ends a string is part of a key."""
    attribute = re.compile(rf"\.{key.replace('.', '_')}\b(?!\")")
    return any(attribute.search(text) for text in sources.values())


def test_topic_keys_that_nothing_reads_say_so(sources: dict[str, str]) -> None:
    for key in TOPIC_CONFIG:
        if key.name not in INTERNAL_KEYS:
            assert key.is_kept_only is not is_read(key.name, sources), key.name


def test_broker_keys_that_nothing_reads_say_so(sources: dict[str, str]) -> None:
    of_topics = {name: topic_key for topic_key, names in SERVER_KEYS.items() for name, _ in names}
    for key in BROKER_CONFIG:
        if key.name in of_topics:
            assert key.is_kept_only is TOPIC_CONFIG[of_topics[key.name]].is_kept_only, key.name
        elif not is_heeded(key.name):  # those of TLS are read as clients' are: core/security/client_settings.py
            assert key.is_kept_only is not is_read(key.name, sources), key.name


def test_group_keys_that_nothing_reads_say_so(sources: dict[str, str]) -> None:
    """Code reads them by a constant, and outside of the table."""
    table = "core/broker/config/group_configs.py"
    elsewhere = "\n".join(text for name, text in sources.items() if name != table)
    for key in GROUP_CONFIG:
        constant = re.search(rf'^(\w+) = "{re.escape(key.name)}"$', sources[table], re.MULTILINE)
        is_used = constant is not None and f"({constant[1]}, " in elsewhere
        assert key.is_kept_only is not is_used, key.name


def test_settings_are_read_by_attribute(sources: dict[str, str]) -> None:
    """A key in a string would be known to no type checker, and not be found by these tests."""
    names = "|".join(re.escape(key.name) for key in BROKER_CONFIG if not is_heeded(key.name))
    by_string = re.compile(rf'(?:config|broker|settings|static)(?:\[|\.get\()"(?:{names})"')
    assert not {name for name, text in sources.items() if by_string.search(text)}


@for_each("keys", [TOPIC_CONFIG, BROKER_CONFIG, GROUP_CONFIG, CLIENT_METRICS_CONFIG])
def test_the_text_says_so_once(keys: ConfigDef) -> None:
    for key in keys:
        assert key.full_doc == key.doc + SENTENCE * key.is_kept_only
        assert "keeps this" not in key.doc


def test_every_setting_is_a_key_of_the_broker() -> None:
    assert BrokerSettings.num_partitions.key is BROKER_CONFIG["num.partitions"]


def create(broker: SteeredNode, name: str, *, validate_only: bool = False, **settings: str) -> None:
    configs = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in settings.items()]
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1, [], configs)], 1000, validate_only)
    assert ask(broker, CREATE_TOPICS, request).topics[0].error_code == 0


def alter(broker: SteeredNode, type_: int, name: str, key: str, value: str | None) -> None:
    request = changes_of(type_, name, (key, 0 if value is not None else 1, value))
    assert ask(broker, INCREMENTAL_ALTER_CONFIGS, request).responses[0].error_code == 0


def line(key: str) -> str:
    return f"{key} is set: plog keeps this setting and does not act on it"


def test_what_is_set_is_logged_once_for_each_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "plog.config")
    with closing(open_broker(tmp_path, log_preallocate="true", num_partitions="2")) as broker:
        assert caplog.messages == [line("log.preallocate")]
        create(broker, "checked", validate_only=True, preallocate="true")
        create(broker, "a", preallocate="true", retention_ms="5")
        create(broker, "b", preallocate="true")
        alter(broker, TOPIC, "a", "preallocate", "false")
        alter(broker, TOPIC, "a", "local.retention.ms", None)
        alter(broker, GROUP, "g", "share.session.timeout.ms", "46000")
        alter(broker, GROUP, "g", "consumer.session.timeout.ms", "46000")
        assert [message for message in caplog.messages if " is set: " in message] == [
            line("log.preallocate"),
            line("preallocate"),
            line("share.session.timeout.ms"),
        ]


def test_topics_of_plogs_own_are_not_remarked_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "plog.config")
    with closing(open_broker(tmp_path)) as broker:
        broker.services.transaction_log.ensure_topic()
    assert not caplog.messages


def test_describe_configs_says_so(tmp_path: Path) -> None:
    with closing(open_broker(tmp_path)) as broker:
        add_topic(broker)
        request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "t", None)], include_documentation=True)
        (result,) = ask(broker, DESCRIBE_CONFIGS, request).results
    docs = {config.name: config.documentation or "" for config in result.configs}
    assert docs["preallocate"].endswith(SENTENCE)
    assert not docs["retention.ms"].endswith(SENTENCE)
