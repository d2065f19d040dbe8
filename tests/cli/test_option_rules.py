"""Options that do not go together, each pair typed: the command is refused with the reason, and nothing is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.common.command_option import Rule
from core.pipeline import consume_request
from tests.support.server import call_plog

CONSUME = {
    "--follow has no --until": ["--follow --until 5"],
    "--as-of and --until: one of them": ["--as-of 5 --until 6"],
    "--latest-per-key and --as-of read to an end: not with --follow or --group": [
        "--latest-per-key --follow", "--latest-per-key --group g", "--as-of 5 --follow", "--as-of 5 --group g",
    ],
    "--merge puts what is there in order: not with --follow or --group": ["--merge --follow", "--merge --group g"],
    "--group has neither --partition nor --until: the group says what is read": [
        "--group g --partition 0", "--group g --until 5",
    ],
    "--group-protocol, --group-instance-id and --commit go with --group": [
        "--group-protocol classic", "--group-protocol consumer", "--group-instance-id i", "--commit before",
    ],
    "a group of --zookeeper has no coordinator: not with --group-protocol or --group-instance-id": [
        "--zookeeper z:1 --group g --group-protocol classic", "--zookeeper z:1 --group g --group-instance-id i",
    ],
    "--group begins in one place on all partitions, whoever reads them: --from WHERE, without a partition": [
        "--group g --from 0=5",
    ],
    "--per-partition goes with --max-messages": ["--per-partition"],
    "--per-partition does not go with --merge, --follow or --group": [
        "--per-partition --max-messages 0 --merge", "--per-partition --max-messages 1 --follow",
        "--per-partition --max-messages 1 --group g",
    ],
    "--timeout-ms goes with --follow or --group: without them it stops at the end": ["--timeout-ms 0"],
    "--format parquet does not go with --group: what is committed would not be written yet": [
        "--group g --format parquet --out there",
    ],
}  # fmt: skip


def ensure_refused(command: str, cases: Mapping[str, Sequence[str]], rules: Sequence[Rule]) -> None:
    for why, typed in cases.items():
        for words in typed:
            done = call_plog(*command.split(), *words.split())
            assert (done.returncode, done.stderr.decode(), done.stdout) == (2, f"error: {why}\n", b""), words
    untested = [rule.why for rule in rules if len(cases.get(rule.why, ())) < len(rule.these.split())]
    assert not untested


def test_consume_refuses_options_that_do_not_go_together() -> None:
    ensure_refused("consume t", CONSUME, consume_request.RULES)
