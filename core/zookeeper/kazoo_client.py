"""Creates kazoo's client from a configuration. kazoo is imported only when a session begins."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from core.common.errors import AccessError, UsageError
from core.zookeeper.zookeeper_config import ZooKeeperConfig

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_MOST_SECONDS_BETWEEN_TRIES = 1.0


class LastComplaint(logging.Handler):
    """Keeps kazoo's last warning: why there is no connection. kazoo itself shows nothing."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = str(record.exc_info[1])
        if not text.startswith("Transition"):
            self.text = text.removeprefix("Connection dropped: ").removeprefix("socket connection error: ").lower()


def make_client(config: ZooKeeperConfig, complaint: logging.Handler) -> KazooClient:
    """Returns a client that tries for ever, and warns only `complaint`. Raises AccessError if kazoo, or a package for
    SASL, is not installed, and UsageError for a missing file.
    """
    try:
        from kazoo.client import KazooClient
        from kazoo.handlers.threading import SequentialThreadingHandler
        from kazoo.retry import KazooRetry
    except ImportError:
        raise AccessError("ZooKeeper needs the package kazoo", hint="pip install 'plog-kafka[cluster]'") from None
    logger = logging.Logger("kazoo", logging.WARNING)
    logger.addHandler(complaint)
    handler = SequentialThreadingHandler()
    return KazooClient(
        hosts=",".join(map(str, config.servers)),
        timeout=config.session_timeout_ms / 1000,
        handler=handler,
        connection_retry=KazooRetry(max_tries=-1, max_delay=_MOST_SECONDS_BETWEEN_TRIES, sleep_func=handler.sleep_func),
        logger=logger,
        **_login_options(config),
        **_tls_options(config),
    )


def _login_options(config: ZooKeeperConfig) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if config.digest is not None:
        options["auth_data"] = [("digest", f"{config.digest.user}:{config.digest.password.reveal()}")]
    if config.sasl is not None:
        try:
            import puresasl  # noqa: F401 - kazoo imports it, and says nothing if it can't
        except ImportError:
            raise AccessError(
                "SASL with ZooKeeper needs the package pure-sasl", hint="pip install 'plog-kafka[cluster]'"
            ) from None
        options["sasl_options"] = {
            "mechanism": "DIGEST-MD5",
            "username": config.sasl.user,
            "password": config.sasl.password.reveal(),
        }
    return options


def _tls_options(config: ZooKeeperConfig) -> dict[str, Any]:
    tls = config.tls
    if tls is None:
        return {}
    for file in filter(None, (tls.ca, tls.certificate, tls.key)):
        if not file.is_file():  # kazoo would try again for ever
            raise UsageError(f"there is no file {file}, which ZooKeeper's TLS is to use")
    return {
        "use_ssl": True,
        "ca": str(tls.ca) if tls.ca else None,
        "certfile": str(tls.certificate) if tls.certificate else None,
        "keyfile": str(tls.key) if tls.key else None,
        "keyfile_password": tls.key_password.reveal() if tls.key_password else None,
        "check_hostname": tls.verifies_host,
    }
