"""Names in certificates, rules that map them, and what Java and Kafka's SslPrincipalMapper make of both.

python -m tests.support.principals    asks them again what tests/golden/security/principals.json has
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

from core.common.errors import UsageError
from core.security.principal_mapping import PrincipalMapping
from tests.support.oracle import java_command

RECORDED = Path(__file__).resolve().parents[1] / "golden" / "security" / "principals.json"
_PROGRAM = Path(__file__).resolve().parent / "kafka" / "Principals.java"

CN = "2.5.4.3"
_KINDS = (
    CN, "2.5.4.11", "2.5.4.10", "2.5.4.6", "2.5.4.8", "2.5.4.7", "2.5.4.9", "0.9.2342.19200300.100.1.25",
    "0.9.2342.19200300.100.1.1", "1.2.840.113549.1.9.1", "2.5.4.5", "1.2.3.4", "2.5.4.3.9", "2.100.3",
)  # fmt: skip
UTF8 = 12
_TAGS = (UTF8, UTF8, UTF8, 19, 20, 22, 27, 30, 28, 26, 18, 4)
"""Strings of all types, and one that is none."""

Part = tuple[str, str | bytes, int]
"""The kind, the value and the value's tag."""


def der(tag: int, contents: bytes) -> bytes:
    size = len(contents)
    length = bytes([size]) if size < 128 else bytes([0x80 | (size.bit_length() + 7) // 8])
    return bytes([tag]) + length + (size.to_bytes((size.bit_length() + 7) // 8) if size >= 128 else b"") + contents


def make_name(*parts: Sequence[Part] | Part) -> bytes:
    """Returns DER of a name of such parts; several in a sequence have one place."""
    places = [[one] if isinstance(one[0], str) else one for one in parts]
    return der(0x30, b"".join(der(0x31, b"".join(_part(*part) for part in place)) for place in places))  # type: ignore[misc]


def _part(kind: str, value: str | bytes, tag: int) -> bytes:
    first, second, *others = map(int, kind.split("."))
    oid = b"".join(map(_base_128, (40 * first + second, *others)))
    return der(0x30, der(6, oid) + der(tag, value.encode() if isinstance(value, str) else value))


def _base_128(number: int) -> bytes:
    low = bytes([number & 0x7F])
    while number := number >> 7:
        low = bytes([0x80 | number & 0x7F]) + low
    return low


def answers_of_kafka(names: Sequence[bytes], mappings: Sequence[tuple[str, str]]) -> list[str | None]:
    """Java's text of each name, then what each of the rules makes of a text; None for an exception."""
    lines = [f"dn {one.hex()}" for one in names]
    lines += [f"map {rules.encode().hex()} {text.encode().hex()}" for rules, text in mappings]
    said = subprocess.run(
        java_command(str(_PROGRAM)), input="\n".join(lines).encode() + b"\n", capture_output=True, check=True
    ).stdout.decode()
    found = [line.partition(" ") for line in said.split("\n")[:-1]]
    return [bytes.fromhex(text).decode() if word == "ok" else None for word, _, text in found]


def map_name(rules: str, text: str) -> tuple[str | None, bool]:
    """What plog makes of a text, and whether it refuses the rules as such."""
    try:
        return PrincipalMapping(rules).find_name(text), False
    except UsageError:
        return None, True


# --- at random


_CHARACTERS = "aZ ,=+<>#;\"\\\n\r\t\0\x1b\x7f\x85\u2028é☃😀\u202e\u00a0'/"
_PIECES = (
    r"^ CN= OU= , (.*) (.*?) ([^,]*) .* (a|b)* [a-c]+ (?:x|y)? \w \s* \d+ \S [^\s,]+ [\w.]* (a)? \, \. ( | ) "
    r"é . {2} + ? * \/ [.] \t"
)
_REPLACEMENTS = r"$1 $2 $0 x \$ \/ - $10 $01 @ $3"
_TEXTS = "CN OU = , a b ab x y é 1 . / A \u2028 \x0b ,OU= CN="


def random_name(rnd: random.Random) -> bytes:
    return make_name(
        *([_random_part(rnd) for _ in range(rnd.choice([1, 1, 1, 2, 3]))] for _ in range(rnd.randrange(5)))
    )


def _random_part(rnd: random.Random) -> Part:
    text = "".join(rnd.choices(_CHARACTERS, k=rnd.randrange(6)))
    return rnd.choice(_KINDS), rnd.choice([text.encode(), text.encode("utf-16-be", "replace")[:8]]), rnd.choice(_TAGS)


def random_mapping(rnd: random.Random) -> tuple[str, str]:
    pattern = "".join(rnd.choices(_PIECES.split(" "), k=rnd.randrange(1, 7)))
    replacement = "".join(rnd.choices(_REPLACEMENTS.split(), k=rnd.randrange(3)))
    rules = f"RULE:{pattern}/{replacement}/{rnd.choice(['', 'L', 'U'])}{rnd.choice(['', '', ',DEFAULT'])}"
    text = "".join(rnd.choices(_TEXTS.split(" "), k=rnd.randrange(8)))
    return rules, rnd.choice(["CN=", ""]) + text.rstrip("\u2028")  # a line end at the end: see the unit tests


def _record() -> None:
    recorded = json.loads(RECORDED.read_text())
    names, mapped = recorded["names"], recorded["mapped"]
    asked = [(rules, text) for rules, texts in mapped.items() for text in texts]
    answers = iter(answers_of_kafka([bytes.fromhex(name) for name in names], asked))
    names = {name: next(answers) for name in names}
    mapped = {rules: {text: next(answers) for text in texts} for rules, texts in mapped.items()}
    RECORDED.write_text(json.dumps({"names": names, "mapped": mapped}, indent=0) + "\n")


if __name__ == "__main__":
    _record()
