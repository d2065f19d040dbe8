"""How a broker reaches ZooKeeper, by its settings. They have Kafka's names, if Kafka has them."""

from __future__ import annotations

from pathlib import Path

from core.broker.config.broker_config import BrokerConfig
from core.common.errors import AccessError, UsageError
from core.security.secret import Secret
from core.zookeeper.zookeeper_config import ZooKeeperConfig, ZooKeeperLogin, ZooKeeperTls, parse_zookeeper_connect


def zookeeper_config_of(connect: str, config: BrokerConfig) -> ZooKeeperConfig:
    """Reads them for the ZooKeeper at `connect`, HOST:PORT,..[/CHROOT]. Raises UsageError for settings that do not fit
    together, AccessError if the password can't be read.
    """
    servers, chroot = parse_zookeeper_connect(connect)
    login = _login(config)
    found = ZooKeeperConfig(
        servers,
        chroot,
        config.zookeeper_session_timeout_ms,
        sets_acls=config.zookeeper_set_acl,
        digest=login if config.plog_zookeeper_login == "digest" else None,
        sasl=login if config.plog_zookeeper_login == "sasl" else None,
        tls=_tls(config),
    )
    found.ensure_consistent()
    return found


def _login(config: BrokerConfig) -> ZooKeeperLogin | None:
    if config.plog_zookeeper_login == "none":
        return None
    user, file = config.plog_zookeeper_user, config.plog_zookeeper_password_file
    if user is None or file is None:
        raise UsageError(
            f"plog.zookeeper.login is {config.plog_zookeeper_login}, and it is not said as whom",
            hint="set plog.zookeeper.user and plog.zookeeper.password.file, too",
        )
    try:
        password = Path(file).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = (getattr(error, "strerror", None) or "it is no text").lower()
        raise AccessError(f"could not read the password for ZooKeeper in {file}: {reason}", where=file) from error
    return ZooKeeperLogin(user, Secret(password))


def _tls(config: BrokerConfig) -> ZooKeeperTls | None:
    if not config.zookeeper_ssl_client_enable:
        return None
    own = config.zookeeper_ssl_keystore_location
    return ZooKeeperTls(
        ca=_pem("zookeeper.ssl.truststore.location", config.zookeeper_ssl_truststore_location),
        certificate=_pem("zookeeper.ssl.keystore.location", own),
        key=_pem("zookeeper.ssl.keystore.location", own),
        verifies_host=bool(config.zookeeper_ssl_endpoint_identification_algorithm),
    )


def _pem(name: str, file: str | None) -> Path | None:
    """Raises UsageError for one of Java's own stores."""
    if file is not None and Path(file).suffix.lower() in (".jks", ".p12", ".pfx", ".keystore", ".truststore"):
        raise UsageError(
            f"{name} is {file}, and plog reads PEM files", hint="keytool -exportcert -rfc writes a certificate as PEM"
        )
    return None if file is None else Path(file)
