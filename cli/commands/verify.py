"""`plog verify`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cli.options import say
from cli.output import OutputFormat, OutputOption, Row, write_rows

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_COLUMNS = ["severity", "code", "path", "position", "offset", "message"]


@app.command()
def verify(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, partition folders, data directories.")],
    output: OutputOption = OutputFormat.table,
) -> None:
    """Check files, partitions or data directories for damage.

    Every checksum, every frame, every index entry against its log. Reads only; exit code 1 where something is found.

    \b
    Example:
      plog verify sample-data/partition
    """
    from cli.findings_out import finding_text
    from cli.progress import Progress, size_text
    from core.inspector.verify import verify as verify_path

    progress = Progress("checked", "bytes", sum(map(_size, paths)))
    findings = []
    for path in paths:
        for finding in verify_path(path, lambda size: progress.add(size, size)):
            findings.append(finding)
            if output is OutputFormat.table:
                progress.done()
                print(finding_text(finding))
    progress.done()
    if output is not OutputFormat.table:
        rows: list[Row] = [
            {
                "severity": f.severity.value,
                "code": f.code.value,
                "path": f.path,
                "position": f.position if f.position >= 0 else None,
                "offset": f.offset if f.offset >= 0 else None,
                "message": f.message,
            }
            for f in findings
        ]
        write_rows(rows, _COLUMNS, output)
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
