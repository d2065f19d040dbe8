"""Whom a listener takes for the owner of a certificate."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from core.broker.serving.door import Door
from core.common.errors import AuthenticationError, UsageError
from core.security.client_security import Tls
from core.security.principal import ANONYMOUS, Principal
from core.security.server_security import ClientAuth, ListenerSecurity, ServerTls
from tests.support.certificates import make_ca, sign
from tests.support.principals import CN, UTF8, der, make_name

_VALIDITY = der(0x30, der(0x17, b"260101000000Z") * 2)


def _door(rules: str = "DEFAULT") -> Door:
    return Door("INSIDE", ListenerSecurity(ServerTls(Tls(), principal_mapping_rules=rules)))


def _certificate(name: str) -> bytes:
    return sign(make_ca(), name, organisation=("plog", "eng")).certificate.public_bytes(Encoding.DER)


def test_a_client_has_the_name_of_its_certificate() -> None:
    assert _door().find_principal(None) == ANONYMOUS
    assert _door().find_principal(_certificate("Alice")) == Principal("User", "CN=Alice,OU=eng,O=plog")
    assert _door("RULE:^CN=([^,]*),.*$/$1/L").find_principal(_certificate("Alice")) == Principal("User", "alice")


def test_a_name_that_no_rule_matches_is_refused_and_its_control_characters_are_not_logged() -> None:
    with pytest.raises(AuthenticationError) as error:
        _door("RULE:^CN=alice,.*$/$0/").find_principal(_certificate("x\nUser:root \x1b[1m"))
    name = r"CN=x\nUser:root \x1b[1m,OU=eng,O=plog"
    assert error.value.message == f"no rule of ssl.principal.mapping.rules matches {name}"
    fields = der(2, b"\1"), der(0x30, b""), der(0x30, b""), _VALIDITY, make_name((CN, "x" * 9999, UTF8)), der(0x30, b"")
    endless = der(0x30, der(0x30, b"".join(fields)))
    with pytest.raises(AuthenticationError) as error:
        _door("RULE:^CN=alice,.*$/$0/").find_principal(endless)
    assert len(error.value.message) < 400


def test_the_certificate_of_a_session_that_goes_on_must_not_have_expired() -> None:
    certificate = _certificate("Alice")
    now = datetime.now(UTC)
    _door().ensure_current(None, now)
    _door().ensure_current(certificate, now + timedelta(days=29))
    with pytest.raises(AuthenticationError, match="the certificate of CN=Alice,OU=eng,O=plog has expired"):
        _door().ensure_current(certificate, now + timedelta(days=31))


def test_a_client_shows_a_certificate_as_soon_as_it_must() -> None:
    door = _door()
    door.ensure_shown(None)
    door.use(ListenerSecurity(ServerTls(Tls(), ClientAuth.REQUIRED)))
    door.ensure_shown(_certificate("Alice"))
    with pytest.raises(AuthenticationError, match="it shows no certificate"):
        door.ensure_shown(None)


def test_names_need_no_further_package() -> None:
    certificate = _certificate("Alice")
    with patch.dict(sys.modules, {"cryptography": None, "cryptography.x509": None}):
        assert _door().find_principal(certificate).name == "CN=Alice,OU=eng,O=plog"


def test_rules_are_checked_when_the_listener_is_made() -> None:
    with pytest.raises(UsageError, match=r"ssl\.principal\.mapping\.rules: RULE:CN="):
        _door("RULE:CN=")
