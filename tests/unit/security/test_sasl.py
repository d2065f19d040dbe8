"""The steps of SASL against the RFCs, what Kafka 4.3.1 answered (tests/golden), scramp, and junk."""

from __future__ import annotations

import ast
import base64
import hashlib
import hmac
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import scramp
from hypothesis import given
from hypothesis import strategies as st

from core.common.errors import AuthenticationError, UsageError
from core.security.sasl.sasl_steps import OAuthBearerClient, PlainClient
from core.security.sasl.scram import (
    MECHANISMS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramClient,
    ScramCredential,
    ScramMechanism,
)
from core.security.sasl.server_steps import Continue, Done, Failed, PlainServer, PlainUsers, ScramServer
from core.security.secret import Secret
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.sasl_servers import Bearer, BearerDone, OAuthBearerServer, credential_of
from tests.support.security_captures import capture

SASL = GOLDEN.parent / "sasl"
CONVERSATIONS = {case["case"]: case["steps"] for case in capture("sasl") if "steps" in case}
BEARERS = {case["case"]: case["log"] for case in json.loads((SASL / "oauthbearer.json").read_text())}
VECTORS = {
    # RFC 5802, section 5
    ScramMechanism("SCRAM-SHA-1", "sha1"): (
        "fyko+d2lbbFgONRv9qkxdawL",
        "3rfcNHYJY1ZVvWVs7j",
        "QSXCR+Q6sek8bf92",
        "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    # RFC 7677, section 3
    SCRAM_SHA_256: (
        "rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
}

# --- SCRAM


@for_each("mechanism", VECTORS, ids=lambda m: m.name)
def test_client_and_server_speak_as_in_the_rfc(mechanism: ScramMechanism) -> None:
    ours, theirs, salt, proof, signature = VECTORS[mechanism]
    client = ScramClient(mechanism, "user", "pencil", nonce=ours)
    assert client.first() == f"n,,n=user,r={ours}".encode()
    answer = client.answer(f"r={ours}{theirs},s={salt},i=4096".encode())
    assert answer == f"c=biws,r={ours}{theirs},p={proof}".encode()
    assert client.answer(f"v={signature}".encode()) is None
    credential = credential_of(mechanism, "pencil", base64.b64decode(salt), 4096)
    server = ScramServer(mechanism, lambda *_: credential, secret=b"s", nonce=theirs)
    first = server.step(f"n,,n=user,r={ours}".encode())
    assert first == Continue(f"r={ours}{theirs},s={salt},i=4096".encode())
    last = server.step(f"c=biws,r={ours}{theirs},p={proof}".encode())
    assert last == Done("user", f"v={signature}".encode())


def scram_case(name: str) -> tuple[ScramClient, dict[str, Any]]:
    """A client that has the nonce of the captured one, and Kafka's last answer."""
    step = CONVERSATIONS[name][0]
    user, _, rest = step["sent"].removeprefix("SCRAM ").partition(" ")
    password, _, options = rest.partition(" ")
    said = ast.literal_eval(options)
    nonce = step["answer"]["_server_first"][2:26]
    client = ScramClient(
        MECHANISMS[said.get("mech", "SCRAM-SHA-256")],
        user,
        password,
        is_token=said.get("ext") == ",tokenauth=true",
        nonce=nonce,
    )
    return client, step["answer"]


@for_each("name", ["SCRAM, good", "SCRAM-SHA-512, good", "SCRAM, escaped name", "delegation token"])
def test_the_client_believes_kafka(name: str) -> None:
    client, answer = scram_case(name)
    client.first()
    assert client.answer(answer["_server_first"].encode())
    assert client.answer(bytes.fromhex(answer["AuthBytes"])) is None


@for_each("name", ["SCRAM, good", "SCRAM-SHA-512, good", "delegation token"])
def test_the_client_does_not_believe_another_signature(name: str) -> None:
    client, answer = scram_case(name)
    client.answer(answer["_server_first"].encode())
    wrong = b"v=" + base64.b64encode(bytes(32))
    with pytest.raises(AuthenticationError, match="signature is wrong"):
        client.answer(wrong)


def test_the_servers_error_is_told() -> None:
    client, answer = scram_case("SCRAM, good")
    client.answer(answer["_server_first"].encode())
    with pytest.raises(AuthenticationError, match="invalid-proof"):
        client.answer(b"e=invalid-proof")


@for_each(
    "server_first, what",
    [
        ("r=abcdef,s=c2FsdA==,i=4095", "4095 iterations, expected 4096"),
        ("r=abcdef,s=c2FsdA==,i=2000000000", "2000000000 iterations"),
        ("r=abc,s=c2FsdA==,i=4096", "nonce"),
        ("r=xyzabc,s=c2FsdA==,i=4096", "nonce"),
        ("m=x,r=abcdef,s=c2FsdA==,i=4096", "extension"),
        ("r=abcdef,s=c2FsdA,i=4096", "base64"),
        ("r=abcdef,i=4096,s=c2FsdA==", "no server-first-message"),
        ("v=c2FsdA==", "no server-first-message"),
        ("", "no server-first-message"),
        ("r=abc" + "d" * 5000 + ",s=c2FsdA==,i=4096", "at most 4096"),
    ],
)
def test_a_wrong_first_message_is_refused(server_first: str, what: str) -> None:
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", nonce="abc")
    with pytest.raises(AuthenticationError, match=what):
        client.answer(server_first.encode())


def accounts(name: str, is_token: bool) -> ScramCredential | None:
    known = {("sam", False): "pw1", ("a,b=c", False): "x", ("token-1", True): "hmac"}
    password = known.get((name, is_token))
    return None if password is None else credential_of(SCRAM_SHA_256, password, b"0123456789abcdef", 4096)


FIRST_MESSAGES = [name for name in CONVERSATIONS if name.startswith("SCRAM, first message ")]
STRICTER = {"SCRAM, first message n,,m=ext,n=sam,r=abc"}


@for_each("name", FIRST_MESSAGES)
def test_the_server_answers_first_messages_as_kafka_does(name: str) -> None:
    step = CONVERSATIONS[name][1]
    message = ast.literal_eval(step["sent"].removeprefix("SaslAuthenticate v2 "))
    answer = ScramServer(SCRAM_SHA_256, accounts, secret=b"s").step(message)
    if step["answer"]["ErrorCode"] or name in STRICTER:
        assert isinstance(answer, Failed)
        if name not in STRICTER:
            assert answer.message == step["answer"]["ErrorMessage"]
    else:
        assert isinstance(answer, Continue)
        assert answer.token.startswith(b"r=abc")


def proof_of(client: ScramClient, server: ScramServer) -> tuple[bytes, bytes]:
    """What the server answers first, and what the client says to that."""
    first = server.step(client.first())
    assert isinstance(first, Continue)
    proof = client.answer(first.token)
    assert proof is not None
    return first.token, proof


def test_a_name_that_nobody_has_fails_as_a_wrong_password_does() -> None:
    def ask(name: str) -> tuple[bytes, object]:
        server = ScramServer(SCRAM_SHA_256, accounts, secret=b"s", nonce="n")
        first, proof = proof_of(ScramClient(SCRAM_SHA_256, name, "wrong", nonce="abc"), server)
        return first, server.step(proof)

    assert ask("sam")[1] == ask("ghost")[1]
    assert isinstance(ask("ghost")[1], Failed)
    assert ask("ghost")[0] == ask("ghost")[0]
    assert ask("ghost")[0] != ask("spectre")[0]


@contextmanager
def counted_hashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts what takes time by its length: hashes, and comparisons of them."""
    counts: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            counts[f"{name} of {[len(one) for one in arguments if isinstance(one, bytes)]}"] += 1
            return function(*arguments)

        return call

    with monkeypatch.context() as patch:
        for module, name in ((hmac, "digest"), (hmac, "compare_digest"), (hashlib, "new")):
            patch.setattr(module, name, counted(name, getattr(module, name)))
        yield counts


@for_each("mechanism", MECHANISMS.values(), ids=lambda m: m.name)
def test_a_name_that_nobody_has_costs_the_same_hashes(
    mechanism: ScramMechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    sam = credential_of(mechanism, "pw1", b"0123456789abcdef", 8192)
    found = []
    for name in ("sam", "who"):
        client = ScramClient(mechanism, name, "wrong", nonce="abc")
        find = {("sam", False): sam}
        server = ScramServer(
            mechanism, lambda *user, known=find: known.get(user), secret=b"s", find_usual=lambda: sam, nonce="n"
        )
        with counted_hashes(monkeypatch) as counts:
            first = server.step(client.first())
        assert isinstance(first, Continue)
        proof = client.answer(first.token)
        assert proof is not None
        with counted_hashes(monkeypatch) as of_last:
            assert isinstance(server.step(proof), Failed)
        found.append((len(first.token), counts, of_last))
    assert found[0] == found[1]
    assert found[0][1]
    assert found[0][2]["compare_digest of " + str([len(sam.stored_key)] * 2)] == 1


def made_up(usual: ScramCredential | None, name: str = "ghost", secret: bytes = b"s") -> tuple[bytes, int]:
    """The salt and the iterations of a name that nobody has."""
    server = ScramServer(SCRAM_SHA_256, lambda *_: None, secret=secret, find_usual=lambda: usual)
    first = server.step(f"n,,n={name},r=abc".encode())
    assert isinstance(first, Continue)
    _, salt, iterations = first.token.decode().split(",")
    return base64.b64decode(salt[2:]), int(iterations[2:])


def test_a_salt_that_is_made_up_looks_like_the_users() -> None:
    random = ScramCredential(bytes(range(24)), b"", b"", 8192)
    kafkas = ScramCredential(b"16gbldc7ueggeff18f0qdwu72i", b"", b"", 4096)  # of a token in sasl.json
    salt, iterations = made_up(random)
    assert (len(salt), iterations) == (24, 8192)
    lengths = {len(made_up(kafkas, name)[0]) for name in map(str, range(100))}
    assert lengths <= {24, 25, 26}
    assert {25, 26} <= lengths
    assert re.fullmatch(rb"[0-9a-z]+", made_up(kafkas)[0])
    assert made_up(None)[1] == 4096
    assert made_up(random)[0] == salt
    assert made_up(random, secret=b"t")[0] != salt
    assert len(made_up(ScramCredential(bytes(range(100)), b"", b"", 4096))[0]) == 100


@for_each("name", ["zoë", "Ωmega", "a,b=c", "=2C", "名前", "a b"])
def test_names_are_utf_8(name: str) -> None:
    """Kafka takes only ASCII (`SCRAM, not ASCII`)."""
    credential = credential_of(SCRAM_SHA_256, "pässwörd", b"0123456789abcdef", 4096)
    server = ScramServer(SCRAM_SHA_256, lambda asked, _: credential if asked == name else None, secret=b"s")
    client = ScramClient(SCRAM_SHA_256, name, "pässwörd")
    last = server.step(proof_of(client, server)[1])
    assert isinstance(last, Done)
    assert last.name == name
    assert client.answer(last.token) is None


@for_each("name, is_token", [("token-1", True), ("token-1", False), ("sam", True)])
def test_tokens_and_users_are_told_apart(name: str, is_token: bool) -> None:
    server = ScramServer(SCRAM_SHA_256, accounts, secret=b"s")
    client = ScramClient(SCRAM_SHA_256, name, {"token-1": "hmac", "sam": "pw1"}[name], is_token=is_token)
    last = server.step(proof_of(client, server)[1])
    assert isinstance(last, Done) == (name == "token-1" and is_token)
    if isinstance(last, Done):
        assert client.answer(last.token) is None


_NAMES = st.text(st.characters(codec="ascii", exclude_characters="\0", exclude_categories=["Cc"]), min_size=1)


@given(_NAMES, _NAMES, st.sampled_from([SCRAM_SHA_256, SCRAM_SHA_512]))
def test_our_client_and_the_other_implementations_server(name: str, password: str, mechanism: ScramMechanism) -> None:
    theirs = scramp.ScramMechanism(mechanism.name)
    account = theirs.make_auth_info(password, iteration_count=4096)
    server = theirs.make_server(lambda _: account)
    client = ScramClient(mechanism, name, password)
    server.set_client_first(client.first().decode())
    proof = client.answer(server.get_server_first().encode())
    assert proof is not None
    server.set_client_final(proof.decode())
    assert client.answer(server.get_server_final().encode()) is None


@given(_NAMES, _NAMES, st.sampled_from([SCRAM_SHA_256, SCRAM_SHA_512]))
def test_the_other_implementations_client_and_our_server(name: str, password: str, mechanism: ScramMechanism) -> None:
    credential = credential_of(mechanism, password, b"0123456789abcdef", 4096)
    asked = []

    def find(found: str, is_token: bool) -> ScramCredential:
        asked.append((found, is_token))
        return credential

    server = ScramServer(mechanism, find, secret=b"s")
    client = scramp.ScramClient([mechanism.name], name, password)
    first = server.step(client.get_client_first().encode())
    assert isinstance(first, Continue)
    client.set_server_first(first.token.decode())
    last = server.step(client.get_client_final().encode())
    assert isinstance(last, Done)
    assert asked == [(last.name, False)]
    client.set_server_final(last.token.decode())


# --- PLAIN


PLAIN_USERS = PlainUsers({name: Secret(f"{name}-secret") for name in ("alice", "bob", "zoë")})


def plain_server() -> PlainServer:
    return PlainServer(PLAIN_USERS.has)


@for_each("name, password", [("alice", "wrong"), ("alicf", "wrong"), ("zoë", "wrong"), ("nobod", "bob-secret")])
def test_plain_compares_with_all_users(name: str, password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One hash, and as many comparisons of one length as there are users, whoever it is."""
    with counted_hashes(monkeypatch) as counts:
        assert not PLAIN_USERS.has(name, password)
    hashes = sum(count for what, count in counts.items() if what.startswith("digest"))
    assert (hashes, counts["compare_digest of [32, 32]"], len(counts)) == (1, 3, 2)
    with counted_hashes(monkeypatch) as right:
        assert PLAIN_USERS.has("alice", "alice-secret")
    assert right["compare_digest of [32, 32]"] == 3


def test_plain_has_its_users_and_no_others() -> None:
    assert PLAIN_USERS.has("zoë", "zoë-secret")
    assert not PlainUsers({}).has("alice", "alice-secret")
    assert not PlainUsers({"a\0b": Secret("c")}).has("a", "b\0c\0")
    assert "secret" not in repr(PLAIN_USERS)


@for_each("name", [name for name in CONVERSATIONS if name.startswith("PLAIN, ")])
def test_the_server_answers_plain_as_kafka_does(name: str) -> None:
    for step in CONVERSATIONS[name]:
        if not step["sent"].startswith("SaslAuthenticate"):
            continue
        message = ast.literal_eval(step["sent"].split(" ", 2)[2])
        expected = step["answer"]
        answer = plain_server().step(message)
        if expected["ErrorCode"]:
            assert answer == Failed(expected["ErrorMessage"])
        else:
            assert answer == Done("alice", bytes.fromhex(expected["AuthBytes"]))


def test_the_client_sends_what_kafka_took() -> None:
    client = PlainClient("alice", "alice-secret")
    assert client.first() == b"\0alice\0alice-secret"
    assert client.answer(b"") is None
    with pytest.raises(AuthenticationError, match="3 bytes where none are due"):
        client.answer(b"yes")


def test_a_name_with_a_nul_is_refused() -> None:
    with pytest.raises(UsageError):
        PlainClient("ali\0ce", "x")


# --- OAUTHBEARER


def bearer_client_says(*challenges: str) -> list[bytes | None]:
    client = OAuthBearerClient("a.b.c", {"logicalCluster": "lkc-1"})
    assert client.first() == b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc-1\x01\x01"
    return [client.answer(bytes.fromhex(challenge)) for challenge in challenges]


def test_a_token_that_kafka_took() -> None:
    assert bearer_client_says(BEARERS["JWKS, good"][1]["AuthBytes"]) == [None]


def test_a_token_that_kafka_refused() -> None:
    assert bearer_client_says(BEARERS["expired"][1]["AuthBytes"]) == [b"\x01"]
    with pytest.raises(AuthenticationError, match="status=invalid_token"):
        bearer_client_says(BEARERS["expired"][1]["AuthBytes"], "")


@for_each("challenge", [b"x", b"[]", b"{}", b'{"status":1}', b"[" * 4000, b" " * 5000])
def test_a_challenge_that_is_none(challenge: bytes) -> None:
    with pytest.raises(AuthenticationError):
        bearer_client_says(challenge.hex())


@for_each(
    "token, extensions", [("se cret", {}), ("secret\x01", {}), ("", {}), ("a", {"auth": "x"}), ("a", {"k": "\x01"})]
)
def test_what_cannot_be_sent_is_refused(token: str, extensions: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"token|extension") as raised:
        OAuthBearerClient(token, extensions)
    assert extensions or not token or token not in raised.value.message


def bearer_server() -> OAuthBearerServer:
    return OAuthBearerServer(lambda token: Bearer("alice", 1000) if token == "good" else None)


@for_each(
    "case, message",
    [
        ("JWKS, good", b"n,,\x01auth=Bearer good\x01\x01"),
        ("authzid the same", b"n,a=alice,\x01auth=Bearer good\x01\x01"),
        ("extension", b"n,,\x01auth=Bearer good\x01logicalCluster=lkc-1\x01\x01"),
        ("lower case bearer", b"n,,\x01auth=bearer good\x01\x01"),
    ],
)
def test_the_server_takes_what_kafka_takes(case: str, message: bytes) -> None:
    assert BEARERS[case][1]["ErrorCode"] == 0
    answer = bearer_server().step(message)
    assert isinstance(answer, BearerDone)
    assert (answer.name, answer.token, answer.expires_at_ms) == ("alice", b"", 1000)
    assert answer.extensions == ({"logicalCluster": "lkc-1"} if case == "extension" else {})


def test_the_server_refuses_a_token_as_kafka_does() -> None:
    server = bearer_server()
    first, last = BEARERS["wrong audience"][1:]
    assert server.step(b"n,,\x01auth=Bearer other\x01\x01") == Continue(bytes.fromhex(first["AuthBytes"]))
    assert server.step(b"\x01") == Failed(last["ErrorMessage"])


@for_each(
    "case, message",
    [
        ("extension named auth", b"n,,\x01auth=Bearer good\x01auth=x\x01\x01"),
        ("gs2 y", b"y,,\x01auth=Bearer good\x01\x01"),
        ("empty", b""),
    ],
)
def test_the_server_refuses_malformed_messages_as_kafka_does(case: str, message: bytes) -> None:
    assert bearer_server().step(message) == Failed(BEARERS[case][1]["ErrorMessage"])


def test_a_good_token_after_a_bad_one_comes_too_late() -> None:
    """Kafka takes it (`bad token, then a good one instead of ^A`)."""
    server = bearer_server()
    server.step(b"n,,\x01auth=Bearer other\x01\x01")
    assert isinstance(server.step(b"n,,\x01auth=Bearer good\x01\x01"), Failed)


# --- junk


@given(
    st.lists(
        st.binary(max_size=200) | st.text("rsivem=,+/AZaz09 \0é", max_size=80).map(str.encode), min_size=1, max_size=3
    )
)
def test_clients_survive_any_server(challenges: list[bytes]) -> None:
    """They raise what they say they raise, and take no signature."""
    for client in (
        ScramClient(SCRAM_SHA_256, "user", "pencil", nonce="r"),
        OAuthBearerClient("token"),
        PlainClient("user", "pencil"),
    ):
        client.first()
        try:
            for challenge in challenges:
                answer = client.answer(challenge)
                assert answer is not None or (challenge == b"" and not isinstance(client, ScramClient))
        except AuthenticationError:
            pass


@given(st.lists(st.binary(max_size=200) | st.text("npya=,rmc\x01 Bearer", max_size=60).map(str.encode), max_size=3))
def test_servers_survive_any_client(messages: list[bytes]) -> None:
    for server in (
        ScramServer(SCRAM_SHA_256, accounts, secret=b"s"),
        bearer_server(),
        plain_server(),
    ):
        for message in messages:
            answer = server.step(message)
            assert not isinstance(answer, Done)
            if isinstance(answer, Failed):
                break
