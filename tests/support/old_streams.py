"""Makes the streams of tests/fixtures/upgrade with the code of an older commit, in a checkout of its own.

    git worktree add OLD COMMIT
    cd OLD
    PYTHONPATH=OLD python -P HERE/tests/support/old_streams.py --folder /srv/upgrade --out HERE/tests/fixtures/upgrade

``tagstream`` and ``tests`` are then those of the old commit. Each stream runs below ``--folder``, whose path its checkpoint
keeps. It takes the first files of its input and ends; the test moves it and gives it the rest.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import tagstream
from tests.drills.stream_job import StreamJob, chunks_of
from tests.support import events as ev

FILES, TAKEN, PER_FILE = 6, 4, 50
MIX = ev.Mix(keys=60, partitions=3)
# What an index forgets that is looked up in the table: the ordering values of deleted keys.
SIMPLER = ev.Mix(
    keys=60, partitions=3, late=0.0, late_deletes=0.0, duplicates=0.0, equal_ordering=0.0, deletes_without_partition=0.0
)
V9 = {
    "hoodie.write.table.version": "9",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
}
COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
COMPACTED = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "3"}
# Inserts do not go into small files, which are then written again as a whole.
LOGS = {"hoodie.parquet.small.file.limit": "0"}
COMPACTED_OFTEN = COMPACTED | {"hoodie.compact.inline.max.delta.commits": "1"}
# Name: type, keys, the step and the batch at which the last run is killed.
STREAMS: dict[str, tuple[str, dict[str, str], str]] = {
    "cow_v6": (COW, {}, ""),
    "mor_v6": (MOR, COMPACTED, ""),
    "cow_v9": (COW, V9, ""),
    "mor_v9": (MOR, V9 | LOGS | COMPACTED, ""),
    "cow_v9_killed": (COW, V9, "metadata_files@3"),
    "mor_v6_killed": (MOR, COMPACTED, "files_published@3"),
    "cow_v6_bloom": (COW, {"hoodie.index.type": "BLOOM"}, ""),
    "mor_v6_global_bloom": (MOR, {"hoodie.index.type": "GLOBAL_BLOOM"}, ""),
    "mor_v9_compaction_killed": (MOR, V9 | LOGS | COMPACTED_OFTEN, "compaction_published@*"),
}
FRAME = "frame_mor_v6"
# A user's program: the DataFrame's rows are the events of the files.
PROGRAM = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
import tagstream
folder = Path(sys.argv[1])
columns, options = json.loads((folder / "frame.json").read_text())
builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
spark = builder.config("spark.local.dir", str(folder / "spark")).getOrCreate()
rows = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
given = {**options, "index.local.dir": str(folder / "local")}
tagstream.upsert(
    rows, str(folder / "table"), str(folder / "checkpoint"), options=given, trigger={"availableNow": True}
).awaitTermination()
spark.stop()
"""


@dataclass
class OldStream(StreamJob):
    """A drill's job whose keys are in a properties file, and whose command line is kept."""

    def arguments(self, *more: str) -> list[str]:
        flags, pairs = [], []
        words = iter(super().arguments(*more))
        for word in words:
            if word == "--hoodie-conf":
                pairs.append(next(words))
            else:
                flags.append(word)
        (self.folder / "job.properties").write_text("".join(f"{pair}\n" for pair in pairs))
        return ["--props", str(self.folder / "job.properties"), *flags]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*", default=[*STREAMS, FRAME])
    given = parser.parse_args()
    print("made by the code in", tagstream.__file__)
    for seed, name in enumerate([*STREAMS, FRAME]):
        if name not in given.names:
            continue
        folder = given.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        mix = SIMPLER if name.endswith("bloom") else MIX
        chunks = chunks_of(list(ev.generate(FILES * PER_FILE, mix, seed=seed)), PER_FILE)
        table_type, conf, crash = STREAMS.get(name, (MOR, {}, ""))
        job = OldStream(folder, table_type, chunks, conf={"spark.sql.shuffle.partitions": "2", **conf})
        job.write_input(0, TAKEN)
        if name == FRAME:
            run_frame(job)
        elif crash:
            point, _, batch = crash.partition("@")
            job.crash(point, batch)
        else:
            job.finish()
        pack(job, given.out / f"{name}.tar.xz")


def run_frame(job: OldStream) -> None:
    columns = "id string, part string, ts long, name string, amount double, _hoodie_is_deleted boolean"
    options = {
        "hoodie.table.name": "events",
        "--table-type": job.table_type,
        **ev.properties(),
        "hoodie.index.bloom.num_entries": 1000,
        "spark.sql.shuffle.partitions": 2,
    }
    (job.folder / "frame.json").write_text(json.dumps([columns, options], indent=1))
    with job.start(program=(sys.executable, "-c", PROGRAM, job.folder), PYSPARK_PYTHON=sys.executable) as process:
        assert process.wait(240) == 0, process.output()


def pack(job: OldStream, path: Path) -> None:
    """All but logs, and in ``next`` what the stream did not take yet.

    A stream that was killed continues on another host, which has no local stores.
    """
    for number, chunk in enumerate(job.chunks[TAKEN:], start=TAKEN):
        ev.write_files(chunk, job.folder / "next", len(chunk), first=number)
    (job.folder / "arguments.json").write_text(json.dumps({"folder": str(job.folder), "arguments": job.arguments()}))
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.name.partition(".")[0]
    left_out = {"log", "spark", *(["local"] if name.endswith("_killed") else [])}
    with tarfile.open(path, "w:xz") as archive:
        for each in sorted({each.name for each in job.folder.iterdir()} - left_out):
            archive.add(job.folder / each, f"{name}/{each}", filter=_nobodys)
    print(path.name, path.stat().st_size)


def _nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main()
