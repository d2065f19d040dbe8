"""The credential that a login is held against: of a lone broker's metadata, and what a broker keeps for its salts."""

from __future__ import annotations

import stat
from pathlib import Path

from core.cluster.image.security_store import most_usual
from core.common.filesystem import FileSystem
from core.files.login_secret import LOGIN_SECRET, read_or_make_login_secret
from core.security.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramCredential
from tests.support.broker import open_broker
from tests.support.raw_sasl_client import set_users, upsertion
from tests.support.sasl_servers import credential_of

SALT = b"0123456789abcdef"


def of(iterations: int, salt: bytes = SALT) -> ScramCredential:
    return ScramCredential(salt, b"", b"", iterations)


def test_a_users_credential_is_found_as_it_is_now(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    find = broker.services.security.find_scram_credential
    assert find("sam", "SCRAM-SHA-256") is None
    set_users(broker, upsertion("sam", "pw1", salt=SALT), upsertion("sam", "pw1", 2, 8192, SALT))
    assert find("sam", "SCRAM-SHA-256") == credential_of(SCRAM_SHA_256, "pw1", SALT, 4096)
    assert find("sam", "SCRAM-SHA-512") == credential_of(SCRAM_SHA_512, "pw1", SALT, 8192)
    set_users(broker, upsertion("sam", "pw2", salt=SALT))
    assert find("sam", "SCRAM-SHA-256") == credential_of(SCRAM_SHA_256, "pw2", SALT, 4096)
    assert find("Sam", "SCRAM-SHA-256") is None
    broker.close()


def test_most_users_decide_how_nobody_looks(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    usual = broker.services.security.usual_scram_credential
    assert usual("SCRAM-SHA-256") is None
    for number, iterations in enumerate((8192, 4096, 8192)):
        set_users(broker, upsertion(f"user{number}", "x", 1, iterations))
    found = usual("SCRAM-SHA-256")
    assert found is not None
    assert found.iterations == 8192
    assert usual("SCRAM-SHA-256") is found
    assert usual("SCRAM-SHA-512") is None
    broker.close()


def test_the_usual_credential_does_not_depend_on_the_order() -> None:
    some = [
        of(4096),
        of(8192, bytes(24)),
        of(8192, b"16gbldc7ueggeff18f0qdwu72i"),
        of(8192, b"3bk2x0v7e1b0lm2gqs7y5p8kc"),
    ]
    found = most_usual(some)
    assert found is not None
    assert len(found.salt) in (25, 26)
    tied = [of(4096), of(8192)]
    assert most_usual(tied) == most_usual(tied[::-1]) == of(8192)
    assert most_usual([]) is None


def test_a_directory_keeps_its_secret_for_its_owner(tmp_path: Path) -> None:
    secret = read_or_make_login_secret(tmp_path, FileSystem())
    path = tmp_path / LOGIN_SECRET
    assert len(secret) == 32
    assert path.read_bytes() == secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_or_make_login_secret(tmp_path, FileSystem()) == secret
    path.write_bytes(b"torn")
    (tmp_path / f"{LOGIN_SECRET}.tmp").write_bytes(b"left over, for everybody")
    other = read_or_make_login_secret(tmp_path, FileSystem())
    assert len(other) == 32
    assert other != secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == [LOGIN_SECRET]


def test_a_read_only_broker_has_the_directorys_secret_and_writes_none(tmp_path: Path) -> None:
    open_broker(tmp_path).close()
    before = sorted(tmp_path.iterdir())
    reader = open_broker(tmp_path, is_read_only=True)
    assert len(reader.find_login_secret()) == 32
    reader.close()
    assert sorted(tmp_path.iterdir()) == before
    broker = open_broker(tmp_path)
    secret = broker.find_login_secret()
    broker.close()
    reader = open_broker(tmp_path, is_read_only=True)
    assert reader.find_login_secret() == secret
    reader.close()
