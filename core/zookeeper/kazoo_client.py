"""Creates kazoo's client from a configuration. kazoo is imported only when a session begins."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from core.common.errors import AccessError, UsageError
from core.files.tls_context import make_context
from core.security.client_security import Tls
from core.zookeeper.zookeeper_config import ZooKeeperConfig

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_log = logging.getLogger("plog.zookeeper")

_MOST_SECONDS_BETWEEN_TRIES = 1.0


class _Tls:
    """Reads certificates and keys again for each connection, so that they can be replaced; owned by kazoo's thread."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._context = make_context(tls)

    def begin(self, plain: Any, host: str) -> Any:
        """Returns the connected socket with TLS on it. Raises OSError if the handshake fails; it is closed then."""
        try:
            self._context = make_context(self._tls)
        except UsageError as error:  # half of them may be replaced
            _log.warning("%s: TLS with ZooKeeper goes on with the certificates that were read before", error)
        try:
            return self._context.wrap_socket(plain, server_hostname=host)
        except OSError:
            plain.close()
            raise


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
    SASL, is not installed, and what `make_context` raises.
    """
    try:
        from kazoo.client import KazooClient
        from kazoo.handlers.threading import SequentialThreadingHandler
        from kazoo.retry import KazooRetry
    except ImportError:
        raise AccessError("ZooKeeper needs the package kazoo", hint="pip install 'plog-kafka[cluster]'") from None
    logger = logging.Logger("kazoo", logging.WARNING)
    logger.addHandler(complaint)
    tls = None if config.tls is None else _Tls(config.tls)

    class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
        """Has the TLS of the configuration, where kazoo's own reads PEM files alone."""

        def create_connection(self, address: Any, hostname: str, timeout: float, **_: object) -> Any:
            plain = super().create_connection(address, timeout=timeout)
            return plain if tls is None else tls.begin(plain, hostname)

    handler = Handler()
    return KazooClient(
        hosts=",".join(map(str, config.servers)),
        timeout=config.session_timeout_ms / 1000,
        handler=handler,
        connection_retry=KazooRetry(max_tries=-1, max_delay=_MOST_SECONDS_BETWEEN_TRIES, sleep_func=handler.sleep_func),
        logger=logger,
        **_login_options(config),
        use_ssl=tls is not None,
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
