"""`plog redrive`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from cli.data_location import Place, WritePlace
from cli.output import OUTPUT, Listing, OutputFormat
from cli.plog_command import command, new_app
from cli.terminal import say
from core.client.write.redrive_request import RedriveRequest

if TYPE_CHECKING:
    from core.client.write.redrive import Redriven

app = new_app()

_SUMS = Listing("topic records tries reason problem dead_letter", drops="problem tries")
_EACH = Listing("topic dead_letter from_topic from_partition from_offset tries reason problem", drops="problem tries")


@command(app, "plog redrive orders.DLT --dry-run")
def redrive(request: RedriveRequest, output: OutputFormat = OUTPUT, place: WritePlace = Place()) -> None:
    """Send dead letters back to the topics that their headers name.

    Each is sent once, however often the command is stopped and begun again. Records that name no topic stay, and are
    listed; the exit code is 1 then.
    """
    from core.client.write.redrive import Redriven
    from core.client.write.redrive import redrive as run

    request.ensure_consistent()
    session = place.session()
    redriven = Redriven()
    try:
        with session.open_client(is_read_only=request.dry_run) as client:
            run(request, client, redriven, say=say, undivided=session.frontend.undivided)
    except BaseException:
        if redriven.rows:
            _show(request, redriven, output)
        raise
    _show(request, redriven, output)
    if redriven.stays:
        raise typer.Exit(1)


def _show(request: RedriveRequest, redriven: Redriven, output: OutputFormat) -> None:
    (_EACH if request.each else _SUMS).write(list(redriven.rows.values()), output)
    would = "would be " * request.dry_run
    parts = [f"{redriven.sent:,} record{'s' * (redriven.sent != 1)} {would}sent back"]
    if redriven.parked:
        parts.append(f"{redriven.parked:,} {would}parked in {request.park}")
    if redriven.stays:
        parts.append(f"{redriven.stays:,} stay{'s' * (redriven.stays == 1)}")
    if redriven.filtered:
        parts.append(f"{redriven.filtered:,} left out by --filter")
    say("; ".join(parts))
