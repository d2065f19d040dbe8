"""`plog verify`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cli.output import OUTPUT, OutputFormat, write_rows
from cli.plog_command import command, new_app
from cli.terminal import say, say_failures, show
from core.common.command_option import argument, flag
from core.common.errors import AccessError
from core.inspector.check.file_kind import skip_unreadable

if TYPE_CHECKING:
    from core.inspector.check.findings import Finding

app = new_app()


@command(app, "plog verify sample-data/partition")
def verify(
    paths: list[Path] = argument("Files, partition folders or data directories.", metavar="PATH..."),
    deep: bool = flag("Decode every batch, and check counts, offsets and timestamps of its records."),
    paranoid: bool = flag("Compute every checksum a second time, with another library."),
    output: OutputFormat = OUTPUT,
) -> None:
    """Check files, partitions or data directories for damage.

    It checks every checksum, every frame and every rule between files. It only reads, and may run beside a broker. The
    exit code is 1 if it finds something. plog help findings says what each finding means; plog recover repairs them.
    """
    from cli.findings_out import COLUMNS, checked_text, finding_row, finding_text, unchecked_text
    from cli.progress import Progress
    from core.inspector.check.segment_check import VerifyOptions
    from core.inspector.check.verify import find_unchecked, size_to_check
    from core.inspector.check.verify import verify as verify_path

    options = VerifyOptions(is_deep=deep, is_paranoid=paranoid)
    progress = Progress("checked", "bytes", sum(map(size_to_check, paths)))
    findings: list[Finding] = []
    failures: list[AccessError] = []

    def look_at(path: Path) -> Iterator[Finding]:
        return verify_path(path, lambda size: progress.add(size, size), options)

    try:
        for finding in skip_unreadable(paths, look_at, failures):
            findings.append(finding)
            if output is OutputFormat.table:
                progress.done()
                show(finding_text(finding))
            elif output is OutputFormat.ndjson:
                write_rows([finding_row(finding)], COLUMNS, output)
    finally:  # findings are reported, whatever ends this
        progress.done()
        if output in (OutputFormat.json, OutputFormat.csv):
            write_rows(list(map(finding_row, findings)), COLUMNS, output)
    unread = {error.where for error in failures}
    what = ", ".join(str(path) for path in paths if str(path) not in unread)
    if what or findings:
        say(checked_text(what, len(findings), progress.bytes, is_deep=deep))
    for folder in chain.from_iterable(map(find_unchecked, paths)):
        say(unchecked_text(folder))
    raise typer.Exit(say_failures(failures) or (1 if findings else 0))
