"""What clients say before, while and after they authenticate, and what they hear, as with Kafka 4.3.1.

Each conversation of the capture is held with a broker behind sockets; the deviations say where it differs, and why. The
time that conversations let pass is that of a clock that they move.
"""

from __future__ import annotations

import ast
import asyncio
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.answers.message_codec import Fields
from tests.support.golden import GOLDEN
from tests.support.manual_clock import ManualClock
from tests.support.raw_sasl_client import SAM, ClosedError, RawClient, raw_request, sasl_server, set_users
from tests.support.security_captures import Difference, assert_explained, capture, differences, left_out

HANGS = "size one below the limit, claimed"
"""Kafka waits for the rest of the frame, which never came."""
CONVERSATIONS = {case["case"]: case["steps"] for case in capture("sasl") if "steps" in case and case["case"] != HANGS}
OF_TOKENS = [case["case"] for case in capture("sasl") if "steps" not in case]
RAW = {
    "TLS ClientHello": bytes.fromhex("16030100") + bytes(200),
    "GET / HTTP/1.1": b"GET / HTTP/1.1\r\n\r\n",
    "size 524288 and one byte": (524288).to_bytes(4) + b"x",
    "size 524289 and one byte": (524289).to_bytes(4) + b"x",
}
PLAYED_BY_HAND = {
    "SaslHandshake v2": raw_request(17, 2, b"\0\5PLAIN"),
    "SaslAuthenticate v3": raw_request(36, 3, b"\0\6abcde\0"),
    "ApiVersions v99": raw_request(18, 99, b"\0"),
}


async def say(client: RawClient, what: str, clock: ManualClock) -> Any:
    """Sends what the capture says was sent; returns the answer."""
    kind, _, rest = what.partition(" ")
    if what in PLAYED_BY_HAND:
        client.send_frame(PLAYED_BY_HAND[what])
        return {"frame": (await client.frame())[:40].hex()}
    if kind == "wait":
        clock.advance(float(rest.removesuffix(" s")) * 1000)
        return None
    if kind == "raw":
        client.send(RAW[rest] if rest in RAW else bytes.fromhex(rest))
        return {"frame": (await client.frame()).hex()}
    if kind == "bare":
        client.send_frame(ast.literal_eval(rest.removeprefix("token ")))
        return {"frame": (await client.frame()).hex()}
    if kind == "SCRAM":
        name, password, options = rest.split(" ", 2)
        return await client.scram(name, password, **ast.literal_eval(options))
    if kind == "three":
        frames = [
            client.request("SaslHandshake", 1, {"Mechanism": "PLAIN"}),
            client.request("SaslAuthenticate", 2, {"AuthBytes": b"\0alice\0alice-secret"}),
            client.request("Metadata", 9, {"Topics": []}),
        ]
        client.send(b"".join(len(frame).to_bytes(4) + frame for frame in frames))
        return [(await client.frame()).hex() for _ in frames]
    version, *about = rest.removeprefix("v").replace(", empty", "").split(" ", 1)
    return await client.ask(kind, int(version), fields_of(kind, *about))


def fields_of(api: str, about: str = "") -> Fields:
    if api == "ApiVersions":
        return {"ClientSoftwareName": "" if about else "lab", "ClientSoftwareVersion": "1"}
    if api == "SaslAuthenticate":
        is_long = about == "520 KB password"
        return {"AuthBytes": b"\0alice\0" + b"x" * 520_000 if is_long else ast.literal_eval(about)}
    return {"SaslHandshake": {"Mechanism": about}, "Produce": {"Acks": 1, "TimeoutMs": 1}}.get(api, {"Topics": []})


async def converse(port: int, steps: list[Any], clock: ManualClock) -> list[Any]:
    """Returns the answers to the steps; the last one may be that the connection was closed."""
    client = await RawClient.connect(port)
    answers: list[Any] = []
    try:
        while len(answers) < len(steps):
            answers.append(await say(client, steps[len(answers)]["sent"], clock))
    except ClosedError:
        answers.append({"closed": "closed"})
    finally:
        client.close()
    return answers


def shown(answer: Any) -> Any:
    """The answer without what differs from run to run."""
    if isinstance(answer, list):  # the three frames: correlation id and error code
        return [frame[:12] for frame in answer]
    if not isinstance(answer, dict):
        return answer
    found = {COMPARED[name]: value for name, value in answer.items() if name in COMPARED}
    if "ApiKeys" in answer:
        found["APIs"] = "none" if answer["ApiKeys"] in ([], "0 keys") else "some"
    if answer.get("AuthBytes"):
        found["token"] = "signature" if answer["AuthBytes"].startswith(b"v=".hex()) else "first message"
    if "frame" in answer:
        found["frame"] = answer["frame"][:16]
    if "_server_first" in answer:
        found["first message"] = re.sub("r=[^,]*,s=[^,]*", "r=..,s=..", answer["_server_first"])
    return found


COMPARED = {
    "ErrorCode": "error", "ErrorMessage": "message", "Mechanisms": "mechanisms", "AuthBytes": "token",
    "SessionLifetimeMs": "lifetime", "Topics": "topics", "closed": "closed",
}  # fmt: skip
"""The fields that are compared, by names of which none is volatile."""


async def test_each_conversation_is_as_with_kafka(tmp_path: Path) -> None:
    clock = ManualClock()
    async with sasl_server(tmp_path, clock) as running:
        set_users(running.broker, *SAM)
        at_once = [name for name in CONVERSATIONS if not name.startswith("REAUTH")]
        answers = dict(
            zip(
                at_once,
                await asyncio.gather(*(converse(running.port, CONVERSATIONS[name], clock) for name in at_once)),
                strict=True,
            )
        )
        for name in CONVERSATIONS.keys() - answers.keys():
            answers[name] = await converse(running.reauth_port, CONVERSATIONS[name], clock)
    found: dict[str, list[Difference]] = {}
    for name, steps in CONVERSATIONS.items():
        theirs = [step["answer"] for step in steps]
        found[name] = differences("alice", by_step(steps, answers[name]), by_step(steps, theirs))
    assert_explained("sasl", found)


def by_step(steps: list[Any], answers: list[Any]) -> Fields:
    sent = [f"{number} {step['sent'].split()[0]}" for number, step in enumerate(steps)]
    return dict(zip(sent, map(shown, answers), strict=False))


async def test_a_frame_of_the_largest_size_is_waited_for(tmp_path: Path) -> None:
    async with sasl_server(tmp_path) as running:
        client = await RawClient.connect(running.port)
        client.send(RAW["size 524288 and one byte"])
        other = await RawClient.connect(running.port)
        assert (await other.log_in("alice", "alice-secret"))["ErrorCode"] == 0
        client.send(bytes(524286))
        assert not client.is_closed
        client.send(b"x")
        with pytest.raises(ClosedError):
            await client.frame()


def test_the_deviations_name_what_is_not_played() -> None:
    assert {name.split()[0] for name in OF_TOKENS} - {"delegation"} <= left_out().keys()


async def test_users_of_kafkas_directory_log_in(tmp_path: Path) -> None:
    """Kafka wrote the credentials of `secured`; the nobody looks like most of them."""
    shutil.copytree(GOLDEN.parent / "secured", tmp_path / "data")
    async with sasl_server(tmp_path / "data", node_id="1") as running:
        clients = [await RawClient.connect(running.port) for _ in range(5)]
        assert (await clients[0].scram("sam", "pw1"))["ErrorCode"] == 0
        assert (await clients[1].scram("sam", "pw1", "SCRAM-SHA-512"))["ErrorCode"] == 0
        assert (await clients[2].scram("a,b=c", "x"))["ErrorCode"] == 0
        wrong = await clients[3].scram("sam", "pw2")
        nobody = await clients[4].scram("nobody", "pw2")
    lengths = {len(answer.pop("_server_first")) for answer in (wrong, nobody)}
    assert len(lengths) == 1
    assert wrong == nobody
