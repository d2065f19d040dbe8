"""Where the addresses that servers advertise can be reached from here: through a port-forward, a tunnel or NAT.

`--resolve ADVERTISED=HOST:PORT,..` has a pair for each address, as curl's `--resolve` and /etc/hosts have. `HOST=HOST`
keeps the port, whichever it is. `bootstrap` stands for all addresses of a cluster with one broker: they are the
bootstrap server's. Only the socket goes elsewhere; TLS checks the advertised name, and messages show both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from core.common.endpoint import Endpoint, parse_endpoint
from core.common.errors import UsageError

Address = tuple[str, int]
"""A host and a port."""

BOOTSTRAP = "bootstrap"
_ANY_PORT = 0
_EXAMPLE = "for example --resolve kafka-0.kafka.svc:9092=127.0.0.1:32400"


def pairs_to_type(addresses: Iterable[Address]) -> str:
    """Returns the option with a pair for each address, whose right side is for the user to fill in."""
    return f"--resolve {','.join(f'{Endpoint(*address)}=HOST:PORT' for address in sorted(set(addresses)))}"


def unreachable_hint(advertised: set[Address], named: Sequence[Address], routes: AddressMap | None) -> str:
    """Says what to type if advertised addresses can't be reached, and the `named` bootstrap servers answer."""
    others = advertised.difference(named)
    unmapped = others if routes is None else routes.unmapped(others)
    if not unmapped:
        return "is the port forwarded to which --resolve leads, and does a broker listen there?"
    is_lone = routes is None and len(advertised) == len(named) == 1
    return (
        "advertised.listeners has to name an address that can be reached from here: plog serve --advertise HOST:PORT; "
        f"through a port-forward or NAT: {'--resolve bootstrap, or ' if is_lone else ''}{pairs_to_type(unmapped)}"
    )


class AddressMap:
    """Several threads may share one: it only adds to what it has seen."""

    def __init__(self, pairs: Mapping[Address, Address], bootstrap: Sequence[Address] = ()) -> None:
        """`pairs`: where each address is; a port of _ANY_PORT on both sides stays as it is. With `bootstrap`, every
        address but these is the first of them.
        """
        self._pairs = pairs
        self._bootstrap = bootstrap
        self._advertised: set[Address] = set()
        self._found: set[Address] = set()
        """The keys of the pairs that were needed."""

    @classmethod
    def of(cls, texts: Sequence[str], bootstrap: Sequence[Address]) -> AddressMap | None:
        """Reads the option's values, for a cluster with these bootstrap servers; None if they are empty. Raises
        UsageError for what is no pair, for two places of one address, and for `bootstrap` beside something else.
        """
        words = [word for text in texts for part in text.split(",") if (word := part.strip())]
        if BOOTSTRAP not in words:
            pairs: dict[Address, Address] = {}
            for word in words:
                advertised, place = _parse_pair(word)
                if pairs.setdefault(advertised, place) != place:
                    raise UsageError(
                        f"--resolve {word}: another pair names another place for that address", hint="say one of them"
                    )
            return cls(pairs) if pairs else None
        if set(words) != {BOOTSTRAP}:
            raise UsageError(
                "--resolve: bootstrap stands for every address, and there are pairs as well", hint="say one of them"
            )
        if len(set(bootstrap)) != 1:
            raise UsageError(
                f"--resolve bootstrap needs one bootstrap server, and {len(set(bootstrap))} are named", hint=_EXAMPLE
            )
        return cls({}, bootstrap)

    def find(self, address: Address) -> Address:
        """Returns where the address is: itself, unless the option says otherwise."""
        host, port = _named(address)
        for key in ((host, port), (host, _ANY_PORT)):
            if key in self._pairs:
                self._found.add(key)
                there = self._pairs[key]
                return there if there[1] != _ANY_PORT else (there[0], port)
        return address if address in self._bootstrap or not self._bootstrap else self._bootstrap[0]

    def note_advertised(self, addresses: Iterable[Address]) -> None:
        """Remembers the addresses that a server advertises. Raises UsageError if `bootstrap` is set and there are
        several brokers: one broker would get the requests for all, and answer NOT_LEADER_OR_FOLLOWER each time.
        """
        self._advertised.update(addresses)
        for address in self._advertised:
            self.find(address)
        if self._bootstrap and len(self._advertised) > 1:
            raise UsageError(
                f"--resolve bootstrap is for a cluster with one broker, and this one has {len(self._advertised)}",
                hint=f"{pairs_to_type(self._advertised)}, with an address for each",
            )

    def unmapped(self, addresses: Iterable[Address]) -> list[Address]:
        """Returns those of the addresses that are where they say."""
        return [address for address in addresses if self.find(address) == address]

    def shared_places(self) -> list[str]:
        """Returns the places that several addresses have: what is meant for one broker reaches another there, unless
        both are the same one's.
        """
        places = [there for there in self._pairs.values() if there[1] != _ANY_PORT]
        return [str(Endpoint(*place)) for place in dict.fromkeys(places) if places.count(place) > 1]

    def unused(self) -> str | None:
        """Returns a sentence about the pairs that nothing needed, or None; also None if no server has answered."""
        others = [_text(key) for key in self._pairs if key not in self._found]
        if self._bootstrap and self._advertised <= set(self._bootstrap):
            others = [BOOTSTRAP]
        if not others or not self._advertised:
            return None
        advertised = ", ".join(str(Endpoint(*address)) for address in sorted(self._advertised))
        verb = "was" if len(others) == 1 else "were"
        return f"--resolve {', '.join(others)} {verb} not needed: the servers advertise {advertised}"


def _named(address: Address) -> Address:
    """Returns the address as names are compared: without regard to case, and to a dot at the end."""
    return address[0].lower().rstrip("."), address[1]


def _text(key: Address) -> str:
    return key[0] if key[1] == _ANY_PORT else str(Endpoint(*key))


def _parse_pair(word: str) -> tuple[Address, Address]:
    left, _, right = (part.strip() for part in word.partition("="))
    if "*" in word:
        raise UsageError(f"--resolve {word}: a pair is about one host", hint=f"HOST=HOST keeps the port; {_EXAMPLE}")
    try:
        key, there = parse_endpoint(left, _ANY_PORT), parse_endpoint(right, _ANY_PORT)
        if key.port == _ANY_PORT != there.port:
            key = parse_endpoint(left)
        elif there.port == _ANY_PORT:
            there = Endpoint(there.host, key.port)
        if not key.host or not right or key.port == _ANY_PORT != there.port:
            raise UsageError("expected HOST:PORT=HOST:PORT, or bootstrap")
    except UsageError as error:
        raise UsageError(f"--resolve {word}: {error.message}", hint=_EXAMPLE) from error
    return _named((key.host, key.port)), (there.host or "127.0.0.1", there.port)
