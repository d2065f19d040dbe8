"""`--resolve`: which pairs are taken, which are refused, and what is said of pairs that nothing needs."""

from __future__ import annotations

import pytest

from core.client.net.address_map import Address, AddressMap
from core.client.net.connect_notice import ConnectNotice
from core.common.errors import UsageError
from tests.support.for_each import for_each

SERVER = [("127.0.0.1", 32400)]


@for_each(
    "text, asked, there",
    [
        ("kafka-0.b.svc:9092=127.0.0.1:32400", ("kafka-0.b.svc", 9092), ("127.0.0.1", 32400)),
        ("kafka-0.b.svc:9092=127.0.0.1:32400", ("kafka-0.b.svc", 9093), ("kafka-0.b.svc", 9093)),
        ("KAFKA-0.b.svc.:9092=:32400", ("kafka-0.B.svc", 9092), ("127.0.0.1", 32400)),
        ("kafka-0.b.svc:9092=127.0.0.1:32400", ("Kafka-0.b.svc.", 9092), ("127.0.0.1", 32400)),
        ("kafka=localhost", ("kafka", 9098), ("localhost", 9098)),
        ("kafka=localhost,kafka:9099=far:1", ("kafka", 9099), ("far", 1)),
        ("kafka=localhost:1", ("kafka", 9092), ("localhost", 1)),
        ("kafka:9098=localhost", ("kafka", 9098), ("localhost", 9098)),
        ("[::1]:9092=[fe80::2]:1", ("::1", 9092), ("fe80::2", 1)),
        (" a:1=b:2 , c:1=d:2 ,", ("c", 1), ("d", 2)),
        ("a:1=b:2,a:1=b:2", ("a", 1), ("b", 2)),
        ("bootstrap", ("kafka", 9092), SERVER[0]),
        ("bootstrap", SERVER[0], SERVER[0]),
    ],
)
def test_an_address_is_where_its_pair_says(text: str, asked: Address, there: Address) -> None:
    routes = AddressMap.of([text], SERVER)
    assert routes is not None
    assert routes.find(asked) == there


@for_each(
    "text, problem",
    [
        ("kafka", "--resolve kafka: expected HOST:PORT=HOST:PORT, or bootstrap"),
        ("kafka=", "--resolve kafka=: expected HOST:PORT"),
        ("=localhost", "--resolve =localhost: expected HOST:PORT"),
        (":9092=localhost:1", "--resolve :9092=localhost:1: expected HOST:PORT"),
        ("a:0=b:1", "--resolve a:0=b:1: expected HOST:PORT"),
        ("a:1=b:99999", "--resolve a:1=b:99999: 'b:99999' is no HOST:PORT"),
        ("*.svc=127.0.0.1", "--resolve *.svc=127.0.0.1: a pair is about one host"),
        ("a:1=b:1,A:1=b:2", "--resolve A:1=b:2: another pair names another place"),
        ("bootstrap,a:1=b:1", "bootstrap stands for every address"),
    ],
)
def test_what_is_no_pair_is_refused(text: str, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        AddressMap.of([text], SERVER)
    assert problem in refused.value.message
    assert refused.value.hint


def test_an_empty_option_is_none_and_bootstrap_needs_one_server() -> None:
    assert AddressMap.of(["", ","], SERVER) is None
    for servers in ([], [*SERVER, ("127.0.0.1", 32401)]):
        with pytest.raises(UsageError, match=f"needs one bootstrap server, and {len(servers)} are named"):
            AddressMap.of(["bootstrap"], servers)


def test_bootstrap_is_refused_for_two_brokers_with_the_pairs_to_fill_in() -> None:
    routes = AddressMap.of(["bootstrap"], SERVER)
    assert routes is not None
    routes.note_advertised([("b", 9092)])
    with pytest.raises(UsageError, match="a cluster with one broker, and this one has 2") as refused:
        routes.note_advertised([("b", 9092), ("a", 9092)])
    assert str(refused.value.hint).startswith("--resolve a:9092=HOST:PORT,b:9092=HOST:PORT")


@for_each(
    "text, note",
    [
        ("kafka:9092=a:1", None),
        ("kafka=a", None),
        ("bootstrap", None),
        ("x:1=a:1", "--resolve x:1 was not needed: the servers advertise kafka:9092"),
        ("kafka:9092=a:1,x:1=a:1,y=b", "--resolve x:1, y were not needed: the servers advertise kafka:9092"),
    ],
)
def test_pairs_that_nothing_needs_are_named(text: str, note: str | None) -> None:
    routes = AddressMap.of([text], SERVER)
    assert routes is not None
    assert routes.unused() is None  # nobody has answered
    routes.note_advertised([("kafka", 9092)])
    assert routes.unused() == note


def test_places_of_several_addresses_are_known() -> None:
    routes = AddressMap.of(["a:1=h:1,b:1=h:1,c:1=h:2,d=h,e=h"], SERVER)
    assert routes is not None
    assert routes.shared_places() == ["h:1"]


def test_addresses_of_ipv6_are_shown_as_they_are_typed() -> None:
    routes = AddressMap.of(["[fe80::1]:9092=[::1]:1,a:1=[::1]:1,x:1=b:1"], SERVER)
    assert routes is not None
    routes.note_advertised([("fe80::1", 9092)])
    assert ConnectNotice(routes).where(("fe80::1", 9092)) == "[fe80::1]:9092 (at [::1]:1)"
    assert routes.shared_places() == ["[::1]:1"]
    assert str(routes.unused()).endswith("the servers advertise [fe80::1]:9092")
    assert ConnectNotice().where(("::1", 9092)) == "[::1]:9092"
