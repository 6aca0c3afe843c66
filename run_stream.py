"""Upserts a change stream into an Apache Hudi table: ``python run_stream.py --help``, or through ``spark-submit``."""

from __future__ import annotations

import sys

from tagstream.streaming.job.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
