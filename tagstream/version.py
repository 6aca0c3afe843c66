"""The version of the project and the folder of its package: here, and nowhere else.

What needs one of them imports this module, and not the package itself, which leads to everything (``tagstream.upsert``).
"""

from __future__ import annotations

from pathlib import Path

VERSION = "0.1.0"
PACKAGE = Path(__file__).parent
