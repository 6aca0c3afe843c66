"""``tagstream fetch-jars``: the jars that jobs here would fetch at their start, fetched beforehand."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from tagstream.cli.output import AdminError, Column, Fact, Output

_COLUMNS = (Column("kind", "for", "name"), Column("name", "jar", "name"), Column("bytes", "size", "bytes"))


def run_fetch_jars(arguments: argparse.Namespace, out: Output, env: Mapping[str, str]) -> int:
    """Fetch what is not there, and list what is there then. AdminError where no Spark is installed."""
    try:
        # Which jars: that depends on the Spark that is installed.
        from tagstream.streaming.job.environment import s3a_jars
        from tagstream.streaming.source.connector import connector_jars
        from tagstream.streaming.source.jars import knows_s3a, running
    except ModuleNotFoundError as e:
        if (e.name or "").split(".")[0] not in ("pyspark", "py4j"):
            raise
        raise AdminError(
            "this Python has no pyspark, and each release of Spark needs its own jars: install the extra spark, or put "
            "the folder python of the Spark that is there on PYTHONPATH, with the zip of py4j in it"
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
        out.note(f"Jobs look there with TAGSTREAM_JARS={folders[0]}")
    return 0
