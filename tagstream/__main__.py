"""``python -m tagstream``: the console script ``tagstream`` without an installation."""

from __future__ import annotations

import sys

from tagstream.admin.command.main import console

if __name__ == "__main__":
    sys.exit(console())
