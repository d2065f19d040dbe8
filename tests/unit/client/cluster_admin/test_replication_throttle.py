"""A throttle sets what is needed, and takes back just that, whatever others have set: brokers are dictionaries here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.client.admin.admin import AlterOperation
from core.client.cluster_admin.replication_throttle import ReplicationThrottle
from core.cluster.assignment.planned_move import PlannedMove
from core.common.config_def import ConfigResourceType, ConfigSource
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, BrokerAwayError, KafkaError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.configs import ChangedConfig, DescribedConfig

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
OWN = {
    ConfigResourceType.TOPIC: ConfigSource.TOPIC_CONFIG,
    ConfigResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MOVE = PlannedMove(T0, (1, 2), (2, 3), 100)
LIVING = (1, 2, 3)


class Settings:
    """Stands for `Admin`: (type, name) -> what is set."""

    def __init__(self) -> None:
        self.held: dict[tuple[ConfigResourceType, str], dict[str, str]] = {}
        self.refuses: set[str] = set()
        self.away: set[str] = set()
        self.hides: set[str] = set()
        """Brokers that do not tell values."""

    def describe_configs(self, type_: ConfigResourceType, name: str) -> list[DescribedConfig]:
        own = self.held.get((type_, name), {})
        values = [(key, None if name in self.hides else value, OWN[type_]) for key, value in own.items()]
        values.append(("retention.ms", "7", ConfigSource.DEFAULT_CONFIG))
        return [DescribedConfig(key, value, config_source=source) for key, value, source in values]

    def alter_configs(self, type_: ConfigResourceType, name: str, changes: Sequence[ChangedConfig]) -> None:
        if name in self.away:
            raise BrokerAwayError(int(name), LIVING)
        if name in self.refuses:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is away")
        held = self.held.setdefault((type_, name), {})
        for change in changes:
            key, value = change.name, change.value
            entries = held.get(key, "").split(",") if held.get(key) else []
            match change.config_operation:
                case AlterOperation.SET:
                    held[key] = value or ""
                case AlterOperation.DELETE:
                    held.pop(key, None)
                case AlterOperation.APPEND:
                    held[key] = ",".join([*entries, *(value or "").split(",")])
                case AlterOperation.SUBTRACT:
                    held[key] = ",".join(entry for entry in entries if entry not in (value or "").split(","))

    def of_topic(self, name: str) -> dict[str, str]:
        return self.held.get((ConfigResourceType.TOPIC, name), {})

    def of_broker(self, number: int) -> dict[str, str]:
        return self.held.get((ConfigResourceType.BROKER, str(number)), {})


def throttle(settings: Settings, folder: Path, said: list[str] | None = None) -> ReplicationThrottle:
    admin: Any = settings
    said = [] if said is None else said
    return ReplicationThrottle(admin, folder / "plog" / "throttle.json", said.append)


def test_it_is_set_as_kafkas_tool_sets_it_and_taken_back_by_another_run(tmp_path: Path) -> None:
    settings = Settings()
    throttle(settings, tmp_path).set([MOVE, PlannedMove(T1, (1, 2), (2, 1))], 1000, LIVING)
    assert settings.of_topic("t") == {LEADERS: "0:1,0:2", FOLLOWERS: "0:3"}
    assert [settings.of_broker(n) for n in (1, 2, 3)] == [{LEADER_RATE: "1000", FOLLOWER_RATE: "1000"}] * 3
    another = throttle(settings, tmp_path)
    assert another.is_set
    assert not another.remove({T0, T1})
    assert settings.of_broker(1)
    assert another.remove({T1})
    assert not any(settings.held.values())
    assert not another.is_set
    assert list((tmp_path / "plog").iterdir()) == []


def test_another_rate_for_what_is_under_way_takes_the_place_of_the_first(tmp_path: Path) -> None:
    settings, said = Settings(), list[str]()
    throttle(settings, tmp_path).set([MOVE], 1000, LIVING)
    assert throttle(settings, tmp_path, said).set([PlannedMove(T1, (1, 2), (2, 4))], 1000, (1, 2, 4)) == {}
    assert throttle(settings, tmp_path, said).set([MOVE], 2000, LIVING) == {1: 1000, 2: 1000, 3: 1000}
    assert settings.of_broker(3) == {LEADER_RATE: "2000", FOLLOWER_RATE: "2000"}
    assert said == []
    assert throttle(settings, tmp_path).remove(())
    assert not any(settings.held.values())


ENTRIES = st.lists(st.sampled_from(["0:1", "0:2", "0:3", "1:1", "7:7"]), unique=True).map(",".join)
RATES = st.sampled_from(["", "1000", "5555"])


@given(st.lists(ENTRIES, min_size=2, max_size=2), st.lists(RATES, min_size=6, max_size=6))
def test_what_others_have_set_is_as_it_was(entries: list[str], rates: list[str]) -> None:
    settings = Settings()
    topic = {key: value for key, value in zip((LEADERS, FOLLOWERS), entries, strict=True) if value}
    settings.held[ConfigResourceType.TOPIC, "t"] = dict(topic)
    brokers = {}
    for number in (1, 2, 3):
        both = zip((LEADER_RATE, FOLLOWER_RATE), rates[2 * number - 2 :], strict=False)
        brokers[number] = {key: value for key, value in both if value}
        settings.held[ConfigResourceType.BROKER, str(number)] = dict(brokers[number])
    with TemporaryDirectory() as folder:
        throttle(settings, Path(folder)).set([MOVE], 1000, LIVING)
        listed = settings.of_topic("t")
        assert {"0:1", "0:2"} <= set(listed[LEADERS].split(","))
        assert "0:3" in listed[FOLLOWERS].split(",")
        assert all(settings.of_broker(number).keys() == {LEADER_RATE, FOLLOWER_RATE} for number in (1, 2, 3))
        throttle(settings, Path(folder)).remove(())
    assert settings.of_topic("t") == topic
    assert {number: settings.of_broker(number) for number in (1, 2, 3)} == brokers


def test_a_topic_all_of_whose_replicas_are_listed_is_left_alone(tmp_path: Path) -> None:
    settings = Settings()
    settings.held[ConfigResourceType.TOPIC, "t"] = {LEADERS: "*", FOLLOWERS: "*"}
    throttle(settings, tmp_path).set([MOVE], 1000, LIVING)
    throttle(settings, tmp_path).remove(())
    assert settings.of_topic("t") == {LEADERS: "*", FOLLOWERS: "*"}


def test_a_rate_that_somebody_changed_meanwhile_stays(tmp_path: Path) -> None:
    settings, said = Settings(), list[str]()
    throttle(settings, tmp_path).set([MOVE], 1000, LIVING)
    settings.of_broker(2)[LEADER_RATE] = "9"
    assert throttle(settings, tmp_path, said).remove(())
    assert settings.of_broker(2) == {LEADER_RATE: "9"}
    assert said == [f"note: broker 2 has {LEADER_RATE}=9, which somebody changed; it stays"]


def test_a_rate_that_somebody_changed_is_not_said_to_be_replaced(tmp_path: Path) -> None:
    settings, said = Settings(), list[str]()
    throttle(settings, tmp_path).set([MOVE], 1000, LIVING)
    settings.of_broker(2).update({LEADER_RATE: "9", FOLLOWER_RATE: "9"})
    assert throttle(settings, tmp_path, said).set([MOVE], 2000, LIVING) == {1: 1000, 3: 1000}
    assert said == [f"note: broker 2 has {key}=9 already, which stays" for key in (LEADER_RATE, FOLLOWER_RATE)]


def test_what_can_not_be_taken_back_now_stays_noted(tmp_path: Path) -> None:
    settings, said = Settings(), list[str]()
    throttle(settings, tmp_path).set([MOVE], 1000, LIVING)
    settings.refuses.add("3")
    assert not throttle(settings, tmp_path, said).remove(())
    assert "the throttle of broker 3 could not be removed: 3 is away" in said[0]
    assert (settings.of_broker(1), bool(settings.of_broker(3))) == ({}, True)
    settings.refuses.clear()
    assert throttle(settings, tmp_path).remove(())
    assert not any(settings.held.values())


def test_a_broker_that_died_keeps_its_throttle_until_it_is_back(tmp_path: Path) -> None:
    settings, said = Settings(), list[str]()
    throttle(settings, tmp_path).set([MOVE], 1000, LIVING)
    settings.away.add("2")
    assert not throttle(settings, tmp_path, said).remove(())
    assert said == [
        "warning: broker 2 is away, and keeps its throttle; plog cluster reassign --status removes it once it is back"
    ]
    settings.away.clear()
    assert throttle(settings, tmp_path).remove(())
    assert not any(settings.held.values())


def test_a_broker_that_does_not_know_the_rates_is_named_and_they_are_taken_back(tmp_path: Path) -> None:
    settings, said = Settings(), list[str]()
    settings.hides.add("3")
    throttle(settings, tmp_path, said).set([MOVE], 1000, LIVING)
    assert said == [f"warning: broker 3 does not know {LEADER_RATE}: its copying is not limited"]
    assert throttle(settings, tmp_path).remove(())
    assert settings.of_broker(3) == {}


def test_a_note_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plog").mkdir()
    for text in ("{", "[]", '{"topics": {}}', '{"topics": {"t": {"x": ["a:b"]}}, "brokers": {}}'):
        (tmp_path / "plog" / "throttle.json").write_text(text)
        with pytest.raises(AccessError, match="does not say which throttles were set"):
            throttle(Settings(), tmp_path).remove(())


def test_without_a_note_nothing_is_set(tmp_path: Path) -> None:
    (tmp_path / "plog" / "throttle.json.tmp").mkdir(parents=True)
    settings = Settings()
    with pytest.raises(AccessError, match="could not note the throttle in"):
        throttle(settings, tmp_path).set([MOVE], 1000, LIVING)
    assert not any(settings.held.values())


def test_a_broker_that_is_away_gets_none(tmp_path: Path) -> None:
    settings, said = Settings(), list[str]()
    settings.refuses.add("1")
    throttle(settings, tmp_path, said).set([MOVE], 1000, (2, 3))
    assert said == ["note: broker 1 is away, and gets no throttle"]
    assert throttle(settings, tmp_path).remove(())
    assert not any(settings.held.values())
