"""Clients with few rights are answered as by a secured Kafka, but where the deviations say why not.

Each request of the captured matrix is asked by each of its 28 users: one without rights, one for each right, and one
who may do everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.cluster.image.metadata_log import read_metadata_image
from core.cluster.image.security_image import acl_of_record
from tests.support.golden import GOLDEN
from tests.support.security_captures import (
    Difference,
    SecuredBroker,
    assert_explained,
    left_out,
    matrix,
    replay,
    replay_combinations,
    right_acls,
    served_names,
)

SERVED = [name for name, case in matrix().items() if case.api in served_names()]


@pytest.fixture(scope="module")
def differences(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Difference]]]:
    """What differs, by case: all requests are asked, in the order of the capture, whichever test runs."""
    broker = SecuredBroker(tmp_path_factory.mktemp("matrix"), right_acls().values())
    yield replay(broker)
    broker.close()


@pytest.mark.parametrize("case", SERVED)
def test_each_user_gets_what_kafka_gives_it(case: str, differences: dict[str, list[Difference]]) -> None:
    assert_explained("matrix", {case: differences[case]})


def test_users_with_several_rights_get_what_kafka_gives_them(tmp_path: Path) -> None:
    broker = SecuredBroker(tmp_path)
    found = replay_combinations(broker)
    broker.close()
    assert_explained("combinations", found)


def test_the_deviations_name_the_apis_that_are_not_served() -> None:
    assert {case.api for case in matrix().values()} - served_names() == set(left_out())


def test_the_users_have_the_acls_of_the_captured_broker() -> None:
    stored = read_metadata_image(GOLDEN.parent / "secured")
    assert stored is not None
    assert {*map(acl_of_record, stored.security.acls.values())}.issuperset(right_acls().values())
