"""``python -m tagstream``: the console script ``tagstream`` without an installation."""

from __future__ import annotations

import sys


def run() -> int:
    """Run the command line and return the exit code. A missing module is reported in one line."""
    try:
        from tagstream.cli.main import console

        return console()
    except ModuleNotFoundError as e:
        if (e.name or "").split(".")[0] == "tagstream":
            raise
        text = f"{sys.executable} has no module {e.name}; use .venv/bin/python, or install the project: pip install ."
        print(f"tagstream: error: {text}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(run())
