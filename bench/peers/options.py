"""The keys of Hudi's own options, by release, read from the classes in its bundles.

``python -m bench.peers.options`` writes ``hudi_keys.tsv`` for the key tables: each key with the releases that have it.
HoodieStreamer's own keys are in none of these bundles. The ones that the job supports are in its key table.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from pathlib import Path

from bench.peers import home
from tagstream.streaming.options.resolve import KEYS_FILE

PROGRAM = Path(__file__).resolve().parent / "HudiOptions.java"


def keys_of(jar: Path, *more: str) -> list[str]:
    """The keys that the classes of a jar declare. ``more``: further entries of the class path."""
    command = ["java", "-cp", ":".join([str(jar), *more]), str(PROGRAM), str(jar)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.split()


def main() -> None:
    """Write the list."""
    found: dict[str, list[str]] = defaultdict(list)
    (spark,) = (home.home() / "venv").glob("lib/python3*/site-packages/pyspark/jars")
    for version in home.HUDI_VERSIONS:
        for key in keys_of(home.bundle(version), f"{spark}/*"):
            found[key].append(version)
    flink = home.HUDI_ON_FLINK
    (jar,) = (home.home() / "jars").glob(f"{flink.pom}-*/hudi-*.jar")
    for key in keys_of(jar, f"{home.home()}/flink-{flink.flink}/*", f"{jar.parent}/*", f"{spark}/*"):
        found[key].append(f"{flink.version} on Flink")
    KEYS_FILE.write_text("".join(f"{key}\t{', '.join(found[key])}\n" for key in sorted(found)), "utf-8")


if __name__ == "__main__":
    main()
