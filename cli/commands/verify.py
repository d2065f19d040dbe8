"""`plog verify`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cli.options import say
from cli.output import OutputFormat, OutputOption, write_rows

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def verify(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, partition folders, data directories.")],
    deep: Annotated[
        bool, typer.Option("--deep", help="Open every batch: codecs, counts, offsets, timestamps.")
    ] = False,
    paranoid: Annotated[
        bool, typer.Option("--paranoid", help="Compute every checksum a second time, with another library.")
    ] = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Check files, partitions or data directories for damage.

    Every checksum, every frame, every rule between files, beside a running broker too. Reads only; exit code 1 where
    something is found. What each finding means, and what mends it: docs/findings.md; plog recover does it.

    \b
    Example:
      plog verify sample-data/partition
    """
    from cli.findings_out import COLUMNS, finding_row, finding_text
    from cli.progress import Progress, size_text
    from core.inspector.segment_check import VerifyOptions
    from core.inspector.verify import verify as verify_path

    options = VerifyOptions(is_deep=deep, is_paranoid=paranoid)
    progress = Progress("checked", "bytes", sum(map(_size, paths)))
    findings = []
    for path in paths:
        for finding in verify_path(path, lambda size: progress.add(size, size), options):
            findings.append(finding)
            if output is OutputFormat.table:
                progress.done()
                print(finding_text(finding))
    progress.done()
    if output is not OutputFormat.table:
        write_rows(list(map(finding_row, findings)), COLUMNS, output)
    what = ", ".join(map(str, paths))
    checked = f"{size_text(progress.bytes)} of log checked"
    say(
        f"{what}: {len(findings)} finding{'' if len(findings) == 1 else 's'}, {checked}"
        if findings
        else f"{what}: clean, {checked}"
    )
    raise typer.Exit(1 if findings else 0)


def _size(path: Path) -> int:
    """Bytes of the logs under a path."""
    if path.is_file():
        return path.stat().st_size
    return sum(
        (Path(folder) / name).stat().st_size
        for folder, _, names in os.walk(path)
        for name in names
        if name.endswith(".log")
    )
