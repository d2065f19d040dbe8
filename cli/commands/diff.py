"""`plog diff`."""

from __future__ import annotations

from pathlib import Path

import typer

from cli.findings_out import print_findings
from cli.output import OUTPUT, Listing, OutputFormat
from cli.plog_command import command, new_app
from cli.terminal import say
from core.common.command_option import argument

app = new_app()

_LISTING = Listing("kind offset last_offset detail position_a position_b", drops="position_b position_a last_offset")


@command(app, "plog diff sample-data/damaged/c_bitflip_middle-0 sample-data/damaged/c_bitflip_length-0")
def diff(
    a: Path = argument("A partition's folder, or a .log file.", metavar="A"),
    b: Path = argument("Another copy of the same partition.", metavar="B"),
    output: OutputFormat = OUTPUT,
) -> None:
    """Compare two copies of a partition: two replicas, or the states before and after a compaction or recovery.

    It lists records that only one copy has, records that differ, and batches that differ although their records are
    equal. If a copy is damaged, it says so and goes on. The exit code is 1 if anything differs.
    """
    from core.inspector.stats.log_diff import LogDiff

    found = LogDiff(a, b)
    differences = list(found)
    _LISTING.write(
        [
            {
                **difference._asdict(),
                "kind": difference.kind.value,
                "position_a": difference.position_a if difference.position_a >= 0 else None,
                "position_b": difference.position_b if difference.position_b >= 0 else None,
            }
            for difference in differences
        ],
        output,
    )
    print_findings(found.findings or [])
    same = f"{found.same_records} record{'s' * (found.same_records != 1)} the same"
    if found.first_divergent_offset is not None:
        say(f"the copies part at offset {found.first_divergent_offset}; {same}")
    else:
        say(f"no record differs; {same}")
    raise typer.Exit(1 if differences or found.findings else 0)
