"""What Spark itself needs for a checkpoint that lies on another file system: jars, settings, the workers' environment.

Only the checkpoint is Spark's: the table and the files of a source are read and written in Python.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from tagstream.streaming.source.connector import JAR_SETTINGS, check_jars, spark_jars
from tagstream.streaming.source.jar_versions import s3a_pom, s3a_versions
from tagstream.table.storage.objects.config import options_of
from tagstream.table.storage.objects.place import S3, SCHEMES, parse

_JARS = "hadoop-aws"
_POM = files("tagstream") / "conf" / "poms" / f"{s3a_pom()}.xml"
# Requests that S3A makes to find out whether a file stands where a folder is wanted, or a folder where a file is: none does.
_QUICK = {"fs.s3a.performance.flags": "create,mkdir,delete"}


def needs_s3a(checkpoint: str, settings: Mapping[str, str]) -> bool:
    """Whether Spark has to be given the jars of S3A. Its own settings (``--packages``, ``--jars``) may name them already."""
    places = (*JAR_SETTINGS, "spark.driver.extraClassPath")
    return _scheme(checkpoint) == S3 and not any(_JARS in settings.get(key, "") for key in places)


def s3a_jars(*, env: Mapping[str, str] = os.environ) -> list[Path]:
    """The jars, fetched the first time (13 MB; 7 MB for Spark 3.5). Raises SourceError when they can't be had."""
    return spark_jars(_POM, s3a_versions(), env=env)


def check_s3a(*, env: Mapping[str, str] = os.environ) -> None:
    """SourceError when the jars are neither there nor could be fetched; nothing is fetched."""
    check_jars(_POM, env, s3a_versions())


def store_conf(checkpoint: str, settings: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings that follow from the environment, where Hadoop's own ``settings`` say nothing of it.

    Keys are not among them: Hadoop reads the same variables of the environment by itself.
    """
    if _scheme(checkpoint) != S3:
        return {}
    made = dict(options_of(parse(checkpoint)[0], settings, env))
    wanted = {**_QUICK, "fs.s3a.endpoint.region": made["region"]}
    if "endpoint" in made:
        plain = made["endpoint"].startswith("http://")
        wanted["fs.s3a.endpoint"] = made["endpoint"]
        wanted["fs.s3a.connection.ssl.enabled"] = str(not plain).lower()
        wanted["fs.s3a.path.style.access"] = str(made["virtual_hosted_style_request"] == "false").lower()
    return {f"spark.hadoop.{name}": value for name, value in wanted.items() if name not in settings}


def _scheme(url: str) -> str:
    return SCHEMES.get(url.partition("://")[0], "") if "://" in url else ""
