"""`python -m plog` and the `plog` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line and exits with its code."""
    from cli.main import run

    sys.exit(run())


if __name__ == "__main__":
    main()
