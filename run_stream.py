"""Upserts a change stream into an Apache Hudi table: ``python run_stream.py --help``, or through ``spark-submit``."""

from __future__ import annotations

import sys

OLDEST = (3, 11)
_OWN = "run it with the project's own Python, .venv/bin/python run_stream.py (`make install` makes it)"


def run() -> int:
    """Run the job and return its exit code. A Python that cannot run it is reported in one line."""
    this = f"{sys.executable} is Python {sys.version_info[0]}.{sys.version_info[1]}"
    if sys.version_info[:2] < OLDEST:
        return _fail(f"{this}, but the job needs {OLDEST[0]}.{OLDEST[1]}; {_OWN}")
    try:
        from tagstream.streaming.job.multi_table import main
    except ModuleNotFoundError as e:
        if e.name == "tagstream":
            return _fail(
                f"{this} and does not find the project; run the file in its own folder, or give --py-files its zip"
            )
        if (e.name or "").startswith("tagstream."):
            raise
        return _fail(f"{this} and has no module {e.name}; {_OWN}, or install the project into this one: pip install .")
    return main(sys.argv[1:])


def _fail(text: str) -> int:
    print(f"tagstream: error: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(run())
