"""The certificate of a listener with TLS: watches its files, puts a new one in the door, and warns before it expires.

Files are looked at, and read, in another thread. What is in them replaces the whole context of the door: connections
that are there keep theirs, and new ones show the new certificate, and are checked by the new trust. A file that can't
be used changes nothing; it is looked at once more before that is logged, because a certificate and its key may be
replaced one after the other. `..data`, the link by which Kubernetes replaces all files of a secret, is followed.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.listener_security import about, find_listener_security
from core.broker.requests.runtime import Runtime
from core.broker.serving.door import Door
from core.broker.serving.listener_endpoints import Listener
from core.common.errors import UsageError
from core.common.printable import printable
from core.files.tls_context import ServerContext, file_states, find_files, load_server_context
from core.security.certificate_fields import CertificateFields
from core.security.server_security import ServerTls

_log = logging.getLogger("plog.server")

_WARN_AHEAD = timedelta(days=30)
"""Or a third of its life, if that is shorter: who has certificates of a week renews them in time."""
MOST_SESSIONS = 500
"""The most sessions of TLS 1.2 that OpenSSL keeps, beside those of a second: each has up to 70 KB of certificates."""
_WARN_AGAIN = timedelta(days=1)


class _Source(NamedTuple):
    """The settings of a context, and the states of its files on the disk."""

    tls: ServerTls
    files: tuple[object, ...]


class _Loaded(NamedTuple):
    source: _Source
    found: ServerContext


def open_door(config: BrokerConfig, listener: Listener) -> tuple[Door, _Loaded | None]:
    """Returns the door, and what its stores hold if it speaks TLS. Raises UsageError, which names the listener, for
    invalid settings and for stores that can't be used.
    """
    security = find_listener_security(config, listener)
    with about(listener):
        loaded = None if security.tls is None else _load(security.tls)
        return Door(listener.name, security, loaded and loaded.found.context), loaded


class ListenerCertificate:
    """Owned by the broker's task, which calls `step` every second."""

    def __init__(
        self,
        listener: Listener,
        door: Door,
        loaded: _Loaded,
        find_config: Callable[[], BrokerConfig],
        runtime: Runtime,
    ) -> None:
        """`door` and `loaded` are of `open_door`; `find_config` returns the present configuration."""
        self._listener = listener
        self._door = door
        self._find_config = find_config
        self._runtime = runtime
        self._used = loaded.source
        self._refused: _Source | None = None
        self._doubted: _Source | None = None
        self._is_looking = False
        self._warned_at: datetime | None = None
        self._chain = loaded.found.chain

    @property
    def own(self) -> CertificateFields:
        """The certificate that new connections are shown."""
        return self._chain[0]

    @property
    def first_end(self) -> datetime:
        """When the first of it and its CAs' certificates expires, as far as the listener shows these."""
        return min(each.end for each in self._chain)

    def step(self) -> None:
        """Begins to look whether the files or the settings have changed, and warns of a certificate that expires. A
        context with too many sessions is made again, as if they had: Python can't empty its cache.
        """
        self._maybe_warn()
        if self._is_looking:
            return
        try:
            wanted = self._wanted(self._find_config())
        except UsageError as error:
            self._refuse(_Source(self._used.tls, ()), error)
            return
        assert self._door.context is not None
        is_full = self._door.context.session_stats()["number"] > MOST_SESSIONS
        known = (None if is_full else self._used, self._refused)
        looks: list[tuple[_Source, ServerContext | UsageError]] = []
        self._is_looking = True
        self._runtime.run_in_background(lambda: looks.extend(_look(wanted, known)), lambda: self._take(looks))

    def ensure_usable(self, config: BrokerConfig) -> None:
        """Raises UsageError if the listener can't be served with this configuration in place of the present one."""
        wanted = self._wanted(config)
        self._ensure_alike(wanted, _load(wanted).found)

    def _wanted(self, config: BrokerConfig) -> ServerTls:
        wanted = find_listener_security(config, self._listener).tls
        assert wanted is not None, "a listener's protocol does not change"
        return wanted

    def _take(self, looks: list[tuple[_Source, ServerContext | UsageError]]) -> None:
        self._is_looking = False
        for source, found in looks:
            try:
                if isinstance(found, UsageError):
                    raise found
                self._ensure_alike(source.tls, found)
            except UsageError as error:
                self._refuse(source, error)
            else:
                self._use(source, found)

    def _ensure_alike(self, wanted: ServerTls, found: ServerContext) -> None:
        """Raises UsageError for a certificate with another name, or for fewer hosts, unless that is allowed; and for
        one that is not valid now, while the present one is.
        """
        own, new, now = self.own, found.chain[0], self._now()
        if own.end > now and not new.start <= now < new.end:
            raise UsageError(f"the new certificate is good from {_text(new.start)} to {_text(new.end)} alone")
        if new.subject != own.subject and not wanted.allows_dn_changes:
            raise UsageError(
                f"the new certificate is of {printable(new.subject, '')}, and the present one of "
                f"{printable(own.subject, '')}",
                hint="ssl.allow.dn.changes=true allows that",
            )
        lacking = set(own.names).difference(new.names)
        if lacking and not wanted.allows_san_changes:
            raise UsageError(
                f"the new certificate lacks {len(lacking)} of the hosts of the present one",
                hint="ssl.allow.san.changes=true allows that",
            )

    def _refuse(self, source: _Source, error: UsageError) -> None:
        if source != self._doubted:
            self._doubted = source
            return
        if source != self._refused:
            self._refused = source
            hint = f"; {error.hint}" if error.hint else ""
            _log.error("listener %s keeps its certificate: %s%s", self._listener.name, error.message, hint)

    def _use(self, source: _Source, found: ServerContext) -> None:
        if found.chain != self._chain:
            self._warned_at = None
            own = found.chain[0]
            _log.info(
                "listener %s shows another certificate from now on: %s, serial %x, which expires at %s",
                self._listener.name,
                printable(own.subject, ""),
                own.serial,
                _text(own.end),
            )
        self._used, self._chain = source, found.chain
        self._refused = self._doubted = None
        self._door.context = found.context

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._runtime.clock.now_ms() / 1000, UTC)

    def _maybe_warn(self) -> None:
        now = self._now()
        if self._warned_at is not None and now - self._warned_at < _WARN_AGAIN:
            return
        late = max(self._chain, key=lambda each: each.start)
        if late.start > now:
            self._warned_at = now
            whose = "certificate" if late is self._chain[0] else "certificate's CA"
            name, subject, start = self._listener.name, printable(late.subject, ""), _text(late.start)
            _log.error("the %s of listener %s is not good before %s: clients refuse %s", whose, name, start, subject)
            return
        soonest = min(self._chain, key=lambda each: each.end)
        if soonest.end - now > min(_WARN_AHEAD, (soonest.end - soonest.start) / 3):
            return
        self._warned_at = now
        whose = "certificate" if soonest is self._chain[0] else "certificate's CA"
        name, subject, end = self._listener.name, printable(soonest.subject, ""), _text(soonest.end)
        if soonest.end <= now:
            _log.error("the %s of listener %s has expired at %s: clients refuse %s", whose, name, end, subject)
        else:
            days = (soonest.end - now).days
            _log.warning("the %s of listener %s expires in %d days, at %s: %s", whose, name, days, end, subject)


def _text(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _load(tls: ServerTls) -> _Loaded:
    """Files that change meanwhile are looked at again. Raises UsageError for stores that can't be used, and for a pipe:
    it could be read once, and a client that may change settings could have the broker wait for it.
    """
    source = _Source(tls, file_states(tls.tls))
    for name, found in find_files(tls.tls).items():
        if found is not None and not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise UsageError(f"{name} is no file that can be read again")
    return _Loaded(source, load_server_context(tls))


def _look(wanted: ServerTls, known: tuple[_Source | None, ...]) -> list[tuple[_Source, ServerContext | UsageError]]:
    """Returns what is there now, or why it can't be used; nothing if it is known."""
    source = _Source(wanted, file_states(wanted.tls))
    if source in known:
        return []
    try:
        return [_load(wanted)]
    except UsageError as error:
        return [(source, error)]
    except Exception as error:  # noqa: BLE001 - the door of the background thread: the next look must come
        return [(source, UsageError(f"its files can't be read: {type(error).__name__}"))]
