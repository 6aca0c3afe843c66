"""The version of the project and the folder of its package. They are defined only here.

Import this module for them, and not the package itself, which imports all other modules (``tagstream.upsert``).
"""

from __future__ import annotations

from pathlib import Path

VERSION = "0.1.0"
PACKAGE = Path(__file__).parent
