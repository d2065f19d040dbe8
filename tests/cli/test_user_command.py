"""`plog user`: passwords never come from arguments, and never go where others read them."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from core.client.net.client_connection import SocketTransport
from core.cluster.image.metadata_log import read_metadata_image
from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.server import call_plog


def users(where: list[str], *names: str) -> list[tuple[str, str, int]]:
    return [tuple(row.values()) for row in json.loads(ok("user", "list", *names, "--output", "json", *where))]


def test_a_users_life(where: list[str], tmp_path: Path) -> None:
    assert b"would create user alice" in call_plog("user", "create", "alice", "--dry-run", *where).stderr
    done = call_plog("user", "create", "alice", "--password-stdin", *where, stdin=b"secret\nother\n")
    assert b"created user alice " in done.stderr
    assert users(where) == [("alice", "SCRAM-SHA-256", 8192), ("alice", "SCRAM-SHA-512", 8192)]
    (tmp_path / "password").write_bytes("pässword\r\n".encode())
    line = ["user", "create", "alice", "--mechanism", "SCRAM-SHA-512", "--iterations", "4096",
            "--password-file", str(tmp_path / "password"), *where]  # fmt: skip
    assert b"would replace the password of user alice" in call_plog(*line, "--dry-run").stderr
    done = call_plog(*line)
    assert done.returncode == 2
    assert b"user alice has a password" in done.stderr
    ok(*line, "--yes")
    assert users(where, "alice") == [("alice", "SCRAM-SHA-256", 8192), ("alice", "SCRAM-SHA-512", 4096)]
    assert call_plog("user", "delete", "alice", *where).returncode == 2
    assert b"would delete 2 passwords" in call_plog("user", "delete", "alice", "--dry-run", *where).stderr
    ok("user", "delete", "alice", "--mechanism", "SCRAM-SHA-256", "--yes", *where)
    assert users(where) == [("alice", "SCRAM-SHA-512", 4096)]
    ok("user", "delete", "alice", "--yes", *where)
    assert users(where) == []
    assert call_plog("user", "delete", "alice", "--yes", *where).returncode == 1
    assert b"no user alice has a password" in call_plog("user", "list", "alice", *where).stderr


@for_each("mechanism, digest", [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
def test_what_is_stored_is_made_of_the_password_and_a_new_salt(mechanism: str, digest: str, tmp_path: Path) -> None:
    where = ["--data-dir", str(tmp_path / mechanism)]
    ok("topic", "create", "t", *where)
    for name in ("a,b=c", "bob"):
        ok("user", "create", name, "--mechanism", mechanism, "--password-stdin", *where, stdin="pässword".encode())
    image = read_metadata_image(tmp_path / mechanism)
    assert image is not None
    stored = list(image.security.scram_credentials.values())
    assert {one.name for one in stored} == {"a,b=c", "bob"}
    assert len({one.salt for one in stored}) == 2
    for one in stored:  # RFC 5802
        assert len(one.salt) >= 16
        salted = hashlib.pbkdf2_hmac(digest, "pässword".encode(), one.salt, 8192)
        client_key = hmac.digest(salted, b"Client Key", digest)
        assert one.stored_key == hashlib.new(digest, client_key).digest()
        assert one.server_key == hmac.digest(salted, b"Server Key", digest)


def test_users_of_a_directory_of_kafkas() -> None:
    found = users(["--data-dir", str(GOLDEN.parent / "secured")], "sam", "sem")
    assert found == [("sam", "SCRAM-SHA-256", 4096), ("sam", "SCRAM-SHA-512", 8192), ("sem", "SCRAM-SHA-256", 4096)]


@for_each(
    "arguments, stdin, code, message",
    [
        (["User:alice", "--password-stdin"], b"x", 2, "did you mean alice?"),
        (["zoë", "--password-stdin"], b"x", 2, "not ASCII"),
        (["", "--password-stdin"], b"x", 2, "is empty"),
        (["a"], b"x", 2, "--password-stdin, or --password-file"),
        (["a", "--password-stdin"], b"", 2, "the password in stdin is empty"),
        (["a", "--password-stdin"], b"\xff\n", 2, "no UTF-8"),
        (["a", "--password-stdin", "--password-file", "x"], b"x", 2, "say one of them"),
        (["a", "--password-file", "/nowhere"], b"", 3, "could not read /nowhere"),
        (["a", "--password-file", "/nowhere", "--dry-run"], b"", 3, "could not read /nowhere"),
        (["a", "--password", "x"], b"", 2, "the password is no argument"),
        (["a", "--iterations", "4095", "--password-stdin"], b"x", 2, "4096"),
        (["a", "--iterations", "16385", "--password-stdin"], b"x", 2, "16384"),
        (["a", "--mechanism", "PLAIN", "--password-stdin"], b"x", 2, "SCRAM-SHA-256"),
    ],
)
def test_wrong_words(arguments: list[str], stdin: bytes, code: int, message: str, tmp_path: Path) -> None:
    place = ["--data-dir", str(tmp_path)]
    done = call_plog("user", "create", *arguments, *place, stdin=stdin)
    assert (done.returncode, message in done.stderr.decode()) == (code, True), done.stderr.decode()


def test_nothing_goes_over_a_network_in_plain(shared_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    where = ["--bootstrap-server", shared_server.address]
    line = ["user", "create", "alice", "--password-stdin", *where]
    monkeypatch.setattr(SocketTransport, "is_private", False)
    done = call_plog(*line, stdin=b"secret")
    assert done.returncode == 2
    assert b"is in plain: whoever reads along could log in as the user" in done.stderr
    assert users(where) == []
    ok(*line, "--allow-plaintext", stdin=b"secret")
    ok("user", "delete", "alice", "--yes", *where)


def test_a_password_is_typed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = ["--data-dir", str(tmp_path)]
    ok("topic", "create", "t", *where)
    answers = ["secret", "secrte", "secret", "secret"]
    asked: list[str] = []
    monkeypatch.setattr("cli.commands.user.ask_password", lambda name: asked.append(name) or answers.pop(0))
    done = call_plog("user", "create", "alice", *where)
    assert done.returncode == 2
    assert b"the two passwords differ" in done.stderr
    ok("user", "create", "alice", *where)
    assert asked == ["alice", "alice, again"] * 2
    assert len(users(where)) == 2
