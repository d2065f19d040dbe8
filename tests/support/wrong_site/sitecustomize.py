"""Python imports this at its start if the folder is on its path (`tests/support/wrong_file.py`)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from tests.support.wrong_file import install_from_environment

install_from_environment()
del sys.path[0]
