"""The certificate of a listener, replaced on the disk and by a change of settings, and warned of before it expires."""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.requests.runtime import ImmediateRuntime
from core.broker.serving import listener_certificate
from core.broker.serving.door import Door
from core.broker.serving.listener_certificate import ListenerCertificate, open_door
from core.broker.serving.listener_endpoints import Listener
from core.common.error_code import ErrorCode
from core.common.errors import UsageError
from core.protocol.schema.configs import INCREMENTAL_ALTER_CONFIGS
from core.security import certificates
from core.security.certificates import Validity
from tests.support.broker import SteeredNode, ask
from tests.support.certificates import Certificate, make_ca, sign
from tests.support.manual_clock import ManualClock
from tests.support.requests import changes_of

LISTENER = Listener("INSIDE", "SSL", "127.0.0.1:0")
PREFIX = "listener.name.inside."
DAY_MS = 86_400_000
CA = make_ca()


def shown(door: Door, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes | None:
    """The certificate that a new connection is shown."""
    assert door.context is not None
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    trusting.maximum_version = version
    ends = trusting.wrap_bio(a, b), door.context.wrap_bio(b, a, server_side=True)
    for _ in range(3):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    with contextlib.suppress(ssl.SSLWantReadError):
        ends[1].unwrap()  # as a listener does: OpenSSL keeps no session that ended otherwise
    return ends[0].getpeercert(binary_form=True)


def pem(certificate: Certificate) -> str:
    return certificate.key_pem() + certificate.pem + (certificate.issuer or CA).pem


def der(certificate: Certificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.pem)


class Watched:
    """A listener whose certificate and key are in one file, `server.pem`."""

    def __init__(self, folder: Path, first: Certificate, **settings: str) -> None:
        self.file = folder / "server.pem"
        self.write(first)
        self.settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.file),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.runtime = ImmediateRuntime()
        self.clock = self.runtime.clock = ManualClock(int(time.time() * 1000))
        self.door, loaded = open_door(self.config(), LISTENER)
        assert loaded is not None
        self.certificate = ListenerCertificate(LISTENER, self.door, loaded, self.config, self.runtime)

    def config(self) -> BrokerConfig:
        return BrokerConfig.parse({PREFIX + name: value for name, value in self.settings.items()})

    def write(self, certificate: Certificate) -> None:
        self.file.write_text(pem(certificate))

    def step(self) -> None:
        self.certificate.step()


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO, "plog.server")
    return lambda: [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_new_connections_have_a_new_certificate_within_a_round(
    tmp_path: Path, errors: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = sign(CA), sign(CA)
    watched = Watched(tmp_path, first)
    before = watched.door.context
    watched.step()
    assert watched.door.context is before, "nothing has changed"
    watched.write(second)
    assert shown(watched.door) == der(first)
    watched.step()
    assert shown(watched.door) == der(second)
    assert watched.door.context is not before
    serial = f"{second.certificate.serial_number:x}"
    assert f"listener INSIDE shows another certificate from now on: CN=server, serial {serial}, which" in caplog.text
    assert errors() == []


def test_a_broken_file_is_logged_once_and_the_old_certificate_kept(
    tmp_path: Path, errors: Callable[[], list[str]]
) -> None:
    first, second = sign(CA), sign(CA)
    watched = Watched(tmp_path, first)
    watched.file.write_text(pem(second)[:-800])
    for _ in range(5):
        watched.step()
    [message] = errors()
    assert message.startswith("listener INSIDE keeps its certificate: ssl.keystore.location: ")
    assert f"{watched.file} holds no certificate" in message
    watched.file.unlink()
    for _ in range(5):
        watched.step()
    [_, message] = errors()
    assert message.endswith(f"ssl.keystore.location: could not read {watched.file}: no such file or directory")
    assert shown(watched.door) == der(first)
    watched.write(second)
    watched.step()
    assert shown(watched.door) == der(second)
    assert len(errors()) == 2


def test_a_file_that_is_written_while_it_is_looked_at_is_no_error(
    tmp_path: Path, errors: Callable[[], list[str]]
) -> None:
    first, second = sign(CA), sign(CA)
    watched = Watched(tmp_path, first)
    for size in (0, 99, 500):
        watched.file.write_text(pem(second)[:size])
        watched.step()
        assert shown(watched.door) == der(first)
    watched.write(second)
    watched.step()
    assert shown(watched.door) == der(second)
    assert errors() == []


def test_two_files_replaced_one_after_the_other_are_no_error(tmp_path: Path, errors: Callable[[], list[str]]) -> None:
    """As certbot replaces them."""
    first, second = sign(CA), sign(CA)
    watched = Watched(tmp_path, first)
    certificate, key = first.write(tmp_path, "tls")
    watched.settings = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    watched.step()
    certificate.write_text(second.pem)
    watched.step()
    assert shown(watched.door) == der(first)
    key.write_text(second.key_pem())
    watched.step()
    assert shown(watched.door) == der(second)
    assert errors() == []


def test_the_link_by_which_kubernetes_replaces_a_secret(tmp_path: Path, errors: Callable[[], list[str]]) -> None:
    """`server.pem` is a link to `..data/server.pem`, and `..data` one to a folder, which a rename replaces."""
    first, second = sign(CA), sign(CA)
    (tmp_path / "..2026_1").mkdir()
    (tmp_path / "..data").symlink_to("..2026_1")
    (tmp_path / "server.pem").symlink_to("..data/server.pem")
    watched = Watched(tmp_path, first)
    (tmp_path / "..2026_2").mkdir()
    (tmp_path / "..2026_2" / "server.pem").write_text(pem(second))
    watched.step()
    assert shown(watched.door) == der(first)
    (tmp_path / "..data_tmp").symlink_to("..2026_2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    watched.step()
    assert shown(watched.door) == der(second)
    assert errors() == []


def test_another_name_or_fewer_hosts_need_leave(tmp_path: Path, errors: Callable[[], list[str]]) -> None:
    first, other, fewer, more = (
        sign(CA, "server"),
        sign(CA, "mallory"),
        sign(CA, "server", names=("localhost",)),
        sign(CA, "server", names=("localhost", "127.0.0.1", "kafka.example.com")),
    )
    watched = Watched(tmp_path, first)
    watched.write(more)
    watched.step()
    assert shown(watched.door) == der(more)
    for one, why in (
        (other, "the new certificate is of CN=mallory, and the present one of CN=server; ssl.allow.dn.changes=true"),
        (fewer, "the new certificate lacks 2 of the hosts of the present one; ssl.allow.san.changes=true"),
    ):
        watched.write(one)
        watched.step()
        watched.step()
        assert shown(watched.door) == der(more)
        assert errors()[-1] == f"listener INSIDE keeps its certificate: {why} allows that"
    watched.settings["ssl.allow.san.changes"] = "true"
    watched.step()
    assert shown(watched.door) == der(fewer)
    watched.settings["ssl.allow.dn.changes"] = "true"
    watched.write(other)
    watched.step()
    assert shown(watched.door) == der(other)


@pytest.mark.parametrize("days", [(-9, -2), (2, 9)])
def test_a_certificate_that_is_not_valid_does_not_replace_one_that_is(
    tmp_path: Path, errors: Callable[[], list[str]], days: tuple[int, int]
) -> None:
    first, bad = sign(CA), sign(CA, days=days)
    watched = Watched(tmp_path, first)
    watched.write(bad)
    watched.step()
    watched.step()
    assert shown(watched.door) == der(first)
    assert "listener INSIDE keeps its certificate: the new certificate is good from " in errors()[0]
    watched.write(first)
    watched.step()
    watched.clock.advance(40 * DAY_MS)
    watched.write(bad)
    watched.step()
    assert shown(watched.door) == der(bad), "neither is valid"


def test_a_new_trust_store_counts_for_new_connections(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(CA.pem)
    watched = Watched(tmp_path, sign(CA), ssl_truststore_location=str(tmp_path / "ca.pem"), ssl_client_auth="required")
    before = watched.door.context
    assert before is not None
    (tmp_path / "ca.pem").write_text(make_ca("another CA").pem)
    watched.step()
    assert watched.door.context is not None
    names = [watched.door.context.get_ca_certs()[0]["subject"], before.get_ca_certs()[0]["subject"]]
    assert [dict(part for (part,) in name)["commonName"] for name in names] == ["another CA", "plog test CA"]


def test_files_are_read_in_another_thread_one_look_at_a_time(tmp_path: Path) -> None:
    first, second = sign(CA), sign(CA)
    watched = Watched(tmp_path, first)
    waiting: list[tuple[Callable[[], None], Callable[[], None]]] = []
    watched.runtime.run_in_background = lambda work, then=None: waiting.append((work, then))
    watched.write(second)
    for _ in range(3):
        watched.step()
    [(work, then)] = waiting
    work()
    assert shown(watched.door) == der(first)
    then()
    assert shown(watched.door) == der(second)


def test_an_unforeseen_error_does_not_end_the_watch(
    tmp_path: Path, errors: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path, sign(CA))
    second = sign(CA)
    with monkeypatch.context() as patch:
        patch.setattr("core.broker.serving.listener_certificate.load_server_context", lambda _: 1 / 0)
        watched.write(second)
        watched.step()
        watched.step()
    assert errors() == ["listener INSIDE keeps its certificate: its files can't be read: ZeroDivisionError"]
    watched.write(second)
    watched.step()
    assert shown(watched.door) == der(second)


@pytest.mark.parametrize(
    ("life_days", "warned_days", "quiet_days", "whose"),
    [(365, 29, 31, "certificate's CA"), (9, 2, 4, "certificate")],
)
def test_a_certificate_is_warned_of_once_a_day_and_an_expired_one_is_an_error(
    tmp_path: Path,
    errors: Callable[[], list[str]],
    caplog: pytest.LogCaptureFixture,
    life_days: int,
    warned_days: int,
    quiet_days: int,
    whose: str,
) -> None:
    """A third of its life before it ends, at most 30 days; of the chain it is the first to end that counts."""
    now = datetime.now(UTC)
    ca = Certificate.of(certificates.make_ca("a CA", Validity.of_days(now, -1, 364)))
    watched = Watched(tmp_path, sign(ca, days=(-1, 400 if life_days == 365 else 8)))
    watched.step()
    assert watched.certificate.first_end == now.replace(microsecond=0) + timedelta(days=life_days - 1)
    watched.clock.advance((life_days - 1 - quiet_days) * DAY_MS)
    watched.step()
    assert errors() == []
    watched.clock.advance((quiet_days - warned_days - 0.5) * DAY_MS)
    for _ in range(25):
        watched.step()
        watched.clock.advance(DAY_MS / 24)
    assert [message.partition(", at ")[0] for message in errors()] == [
        f"the {whose} of listener INSIDE expires in {warned_days - back} days" for back in (0, 1)
    ]
    watched.clock.advance((warned_days + 1) * DAY_MS)
    watched.step()
    assert caplog.records[-1].levelno == logging.ERROR
    assert errors()[-1].startswith(f"the {whose} of listener INSIDE has expired at ")


@pytest.mark.parametrize("is_of_the_ca", [False, True])
def test_a_certificate_that_is_not_good_yet_is_an_error_once_a_day(
    tmp_path: Path, errors: Callable[[], list[str]], caplog: pytest.LogCaptureFixture, is_of_the_ca: bool
) -> None:
    late = Validity.of_days(datetime.now(UTC), 2, 400)
    ca = Certificate.of(certificates.make_ca("a CA", late)) if is_of_the_ca else CA
    watched = Watched(tmp_path, sign(ca, days=(-1, 300) if is_of_the_ca else (2, 300)))
    whose = "certificate's CA" if is_of_the_ca else "certificate"
    for _ in range(60):
        watched.step()
        watched.clock.advance(DAY_MS / 24)
    assert [message.partition(" before ")[0] for message in errors()] == [
        f"the {whose} of listener INSIDE is not good"
    ] * 2
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


def test_a_listener_without_a_usable_store_is_not_served(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the key in .* does not belong to its certificate"):
        Watched(tmp_path, Certificate(sign(CA).certificate, sign(CA).key, CA))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    watched = Watched(tmp_path, sign(CA))
    os.mkfifo(tmp_path / "pipe")
    watched.settings["ssl.keystore.location"] = str(tmp_path / "pipe")
    with pytest.raises(UsageError, match=f"{tmp_path}/pipe is no file that can be read again"):
        watched.certificate.ensure_usable(watched.config())
    watched.step()


def test_sessions_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of TLS 1.2: OpenSSL keeps 20,000 of a context, each with the client's certificates."""
    monkeypatch.setattr(listener_certificate, "MOST_SESSIONS", 3)
    watched = Watched(tmp_path, first := sign(CA))
    for _ in range(4):
        before = watched.door.context
        watched.step()
        assert watched.door.context is before
        assert shown(watched.door, ssl.TLSVersion.TLSv1_2) == der(first)
    watched.step()
    assert watched.door.context is not before
    assert shown(watched.door) == der(first)
    assert "shows another certificate" not in caplog.text


def test_a_file_has_no_nul_in_its_name(tmp_path: Path) -> None:
    watched = Watched(tmp_path, sign(CA))
    watched.settings["ssl.keystore.location"] = "/tmp/x\0y"
    with pytest.raises(UsageError, match="is no path: it has a null byte"):
        watched.certificate.ensure_usable(watched.config())


@pytest.mark.skipif(not Path("/proc/kmsg").exists(), reason="files whose reading waits are Linux's")
def test_a_file_of_the_system_is_not_waited_for(tmp_path: Path) -> None:
    """Its reader, who must be root, waits for the next line of the kernel."""
    watched = Watched(tmp_path, sign(CA))
    watched.settings["ssl.keystore.location"] = "/proc/kmsg"
    with pytest.raises(UsageError, match="/proc/kmsg is empty"):
        watched.certificate.ensure_usable(watched.config())


# --- by a change of settings


def test_a_change_of_settings_is_checked_and_obeyed(tmp_path: Path) -> None:
    first, second, other = sign(CA), sign(CA), sign(CA, "mallory")
    (tmp_path / "first.p12").write_bytes(first.pkcs12("changeit"))
    (tmp_path / "second.p12").write_bytes(second.pkcs12("changeit"))
    (tmp_path / "other.p12").write_bytes(other.pkcs12("changeit"))
    static = {
        f"{PREFIX}ssl.keystore.location": str(tmp_path / "first.p12"),
        f"{PREFIX}ssl.keystore.password": "changeit",
    }
    broker = SteeredNode(tmp_path / "data", BrokerConfig.parse(static), clock=ManualClock(int(time.time() * 1000)))
    configs = broker.services.configs
    door, loaded = open_door(configs.broker, LISTENER)
    assert loaded is not None
    certificate = ListenerCertificate(LISTENER, door, loaded, lambda: configs.broker, broker.runtime)
    configs.checks.append(certificate.ensure_usable)
    me = str(broker.services.node.node_id)

    def alter(**settings: str) -> tuple[int, str]:
        changes = ((PREFIX + name.replace("_", "."), 0, value) for name, value in settings.items())
        (result,) = ask(broker, INCREMENTAL_ALTER_CONFIGS, changes_of(4, me, *changes)).responses
        certificate.step()
        return result.error_code, result.error_message or ""

    assert alter(ssl_keystore_location=str(tmp_path / "second.p12")) == (0, "")
    assert shown(door) == der(second)
    for settings, why in (
        ({"ssl_keystore_password": "nope"}, f"{tmp_path}/second.p12 can't be read as PKCS12: the password is wrong"),
        ({"ssl_keystore_location": str(tmp_path / "other.p12")}, "the new certificate is of CN=mallory"),
        ({"ssl_keystore_location": "/no/such"}, "could not read /no/such: no such file or directory"),
    ):
        code, message = alter(**settings)
        assert code == ErrorCode.INVALID_REQUEST
        assert why in message
        assert "nope" not in message
        assert shown(door) == der(second)
    (tmp_path / "second.p12").write_bytes(first.pkcs12("changeit"))
    assert alter(ssl_keystore_location=str(tmp_path / "second.p12")) == (0, ""), "the same file, which has changed"
    assert shown(door) == der(first)
    (tmp_path / "second.p12").write_bytes(b"0 broken")
    code, message = alter(ssl_keystore_location=str(tmp_path / "second.p12"))
    assert (code, "the password is wrong, or it is damaged" in message) == (ErrorCode.INVALID_REQUEST, True)
    assert shown(door) == der(first)
    broker.close()
