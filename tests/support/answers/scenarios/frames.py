"""Frames: versions that nobody has, and bytes that are no request."""

from __future__ import annotations

import struct

from tests.support.answers.asked_broker import AskedBroker, raw_header
from tests.support.answers.message_codec import Fields, api_keys, encode_request, versions_of
from tests.support.answers.scenarios.registry import scenario

API_VERSIONS = "ApiVersions"


@scenario
def api_versions(broker: AskedBroker) -> None:
    served = set(api_keys().values())

    def of_both(answer: Fields) -> Fields:
        epoch = {"FinalizedFeaturesEpoch": answer.get("FinalizedFeaturesEpoch", -1) >= 0}
        return {**answer, **epoch, "ApiKeys": [api for api in answer["ApiKeys"] if api["ApiKey"] in served]}

    def only_error(answer: Fields) -> Fields:
        return {"ErrorCode": answer["ErrorCode"], "lists apis": bool(answer["ApiKeys"])}

    broker.ask_each("every version", API_VERSIONS, ClientSoftwareName="n", ClientSoftwareVersion="1", pick=of_both)
    names = [("", ""), ("lab", ""), ("", "1"), ("-a", "1"), ("a b", "1"), ("a.b-c", "1.0-x"), ("é", "1")]
    for name, version in [*names, ("a" * 300, "1"), ("a", "1_0"), ("a", "_"), ("a.", "1")]:
        broker.ask(
            f"software {name[:10]!r} {version!r}",
            API_VERSIONS,
            3,
            ClientSoftwareName=name,
            ClientSoftwareVersion=version,
            connection=name + version,
            pick=only_error,
        )
    for version in (5, 9, 100, -1, 32767):
        frame = raw_header(API_VERSIONS, version) + b"\0\1\1\0"
        broker.ask_frame(f"version {version}", frame, API_VERSIONS, version, decode_as=0)


@scenario
def unsupported_versions(broker: AskedBroker) -> None:
    for api in api_keys():
        if api == API_VERSIONS:
            continue
        for version in sorted({-1, versions_of(api)[0] - 1, versions_of(api)[-1] + 1, 99}):
            frame = raw_header(api, version) + bytes(20)
            broker.ask_bytes(f"{api} version {version}", struct.pack(">i", len(frame)) + frame)
    for key in (999, -1, 4, 5, 6, 7, 58, 59, 70, 17000):
        frame = struct.pack(">hhih", key, 0, 7, -1) + bytes(20)
        broker.ask_bytes(f"api {key}", struct.pack(">i", len(frame)) + frame)


@scenario
def frames(broker: AskedBroker) -> None:
    whole = encode_request("Metadata", 1, 9, "lab", {"Topics": []})
    flexible = encode_request("Metadata", 12, 9, "lab", {"Topics": []})
    header = raw_header("Metadata", 1)
    for step, frame in {
        "an empty frame": b"",
        "one byte": b"\0",
        "a header that ends early": whole[:7],
        "a body that ends early": whole[:-1],
        "a flexible body that ends early": flexible[:-1],
        "a client id of length -2": header[:8] + struct.pack(">h", -2) + bytes(4),
        "a client id that is longer than the frame": header[:8] + struct.pack(">h", 300) + b"x",
        "an array of length -5": header + struct.pack(">i", -5),
        "an array of length 2^31-1": header + struct.pack(">i", 2**31 - 1),
    }.items():
        broker.ask_bytes(step, struct.pack(">i", len(frame)) + frame)
    for length in (-1, 0x7FFFFFFF, 104857601):
        broker.ask_bytes(f"a frame of length {length}", struct.pack(">i", length) + b"abc")
    for step, frame, version in (
        ("bytes after the body", whole + bytes(3), 1),
        ("bytes after a flexible body", flexible + b"\1", 12),
        ("a client id that is not UTF-8", raw_header("Metadata", 1, client_id=b"\xff\xfe") + bytes(4), 1),
        ("unknown tags in the header", raw_header("Metadata", 12) + b"\1\5\1x\1\1\0\0", 12),
        ("unknown tags in the body", raw_header("Metadata", 12) + b"\0\1\1\0\1\x09\2ab", 12),
        ("tags out of order", raw_header("Metadata", 12) + b"\0\1\1\0\2\x09\1a\x08\1b", 12),
    ):
        broker.ask_frame(step, frame, "Metadata", version)


@scenario
def cut_requests(broker: AskedBroker) -> None:
    """Requests of each API with its defaults, a byte or two short, and longer than they say."""
    for api in api_keys():
        if api == API_VERSIONS:
            continue
        for version in sorted({versions_of(api)[0], versions_of(api)[-1]}):
            frame = encode_request(api, version, 9, "lab", {"MaxWaitMs": 100} if api == "Fetch" else {})
            for missing in (1, 2):
                data = struct.pack(">i", len(frame) - missing) + frame[:-missing]
                broker.ask_bytes(f"{api} version {version}, {missing} missing", data)
