"""``tagstream fetch-jars``: fetch in advance the jars that jobs on this machine would fetch at their start."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from tagstream.cli.command import Command
from tagstream.cli.output import AdminError, Column, Fact, Output

_COLUMNS = (Column("kind", "for", "name"), Column("name", "jar", "name"), Column("bytes", "size", "bytes"))


def run_fetch_jars(arguments: argparse.Namespace, out: Output, env: Mapping[str, str]) -> int:
    """Fetch the missing jars, and list all of them. AdminError when no Spark is installed."""
    try:
        # The list of jars depends on the installed Spark.
        from tagstream.streaming.job.environment import s3a_jars
        from tagstream.streaming.source.connector import connector_jars
        from tagstream.streaming.source.jars import knows_s3a, running
    except ModuleNotFoundError as e:
        if (e.name or "").split(".")[0] not in ("pyspark", "py4j"):
            raise
        raise AdminError(
            "this Python has no pyspark, and each release of Spark needs its own jars: install the extra spark, or put "
            "the folder python of your Spark on PYTHONPATH, with the zip of py4j in it"
        ) from e
    told = {**env, "TAGSTREAM_JARS": arguments.out} if arguments.out else env
    both = arguments.kafka == arguments.s3a
    found: list[tuple[str, Path]] = []
    if arguments.kafka or both:
        out.progress("the jars of Kafka's connector")
        found += [("kafka", jar) for jar in connector_jars(env=told)]
    if arguments.s3a or (both and knows_s3a()):
        out.progress("the jars for a checkpoint on s3a://")
        found += [("s3a", jar) for jar in s3a_jars(env=told)]
    out.listing("jars", _COLUMNS, ((kind, jar.name, jar.stat().st_size) for kind, jar in found))
    folders = sorted({str(jar.parent) for _, jar in found})
    spark, scala = running()
    out.facts(
        [Fact("spark", "Spark", spark), Fact("scala", "Scala", scala), Fact("folders", "folder", ", ".join(folders))]
    )
    if arguments.out:
        out.note(f"Jobs find them with TAGSTREAM_JARS={folders[0]}")
    return 0


def _add_flags(out: argparse.ArgumentParser) -> None:
    out.add_argument("--kafka", action="store_true", help="the jars of Kafka's connector (default: all jars)")
    out.add_argument("--s3a", action="store_true", help="the jars for a checkpoint on s3a:// (default: all jars)")
    out.add_argument(
        "--out",
        metavar="FOLDER",
        help="folder for the jars, for TAGSTREAM_JARS of a job (default: TAGSTREAM_JARS, or else the cache of the jobs)",
    )


COMMANDS = (
    Command(
        "fetch-jars",
        "",
        "fetch the jars that the installed Spark needs, so that no start has to fetch them",
        _add_flags,
        lambda arguments, out, _: run_fetch_jars(arguments, out, os.environ),
    ),
)
