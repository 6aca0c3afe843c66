"""Versions of the jars that fit the running Spark: what takes the place of the versions in the poms of ``conf/poms/``.

The poms are for the newest release that they fit. Each version here was fetched and run with that release
(docs/platforms.md); the patch of a release makes no difference to them.
"""

from __future__ import annotations

from tagstream.spark_release import RELEASE, scala_version
from tagstream.streaming.errors import SourceError

KAFKA: dict[tuple[int, int], dict[str, str]] = {
    (3, 5): {"spark": "3.5.7", "token": "3.5.4", "kafka": "3.4.1", "pool": "2.11.1"},
    (4, 0): {"spark": "4.0.4", "token": "4.0.0", "kafka": "3.9.1", "pool": "2.12.0"},
    (4, 1): {"spark": "4.1.3", "token": "4.1.1", "kafka": "3.9.1", "pool": "2.12.1"},
    (4, 2): {},
}
S3A: dict[tuple[int, int], dict[str, str]] = {
    (3, 5): {},
    (4, 0): {"hadoop": "3.4.1", "cloud": "4.0.0"},
    (4, 1): {"hadoop": "3.4.1", "cloud": "4.1.1"},
    (4, 2): {},
}
# Not in the repository that the others come from: spark-hadoop-cloud.
NO_S3A = {((3, 5), "2.13")}


def kafka_versions() -> dict[str, str]:
    """Of Kafka's connector. SourceError for a release of Spark that none is known for."""
    name = ".".join(map(str, RELEASE))
    if RELEASE not in KAFKA:
        raise SourceError(
            f"no connector for Kafka is known for Spark {name}: give one with --packages "
            f"org.apache.spark:spark-sql-kafka-0-10_{scala_version()}:<the version of Spark>"
        )
    return _of_scala(KAFKA[RELEASE])


def s3a_versions() -> dict[str, str]:
    """Of S3A. SourceError for a release of Spark that none are known for."""
    name = ".".join(map(str, RELEASE))
    if not knows_s3a():
        raise SourceError(
            f"the jars for a checkpoint on s3a:// are not fetched for Spark {name} with Scala {scala_version()}: give those "
            "that its Hadoop needs with --packages (hadoop-aws, spark-hadoop-cloud), or keep the checkpoint on another store"
        )
    return _of_scala(S3A[RELEASE])


def s3a_pom(release: tuple[int, int] = RELEASE) -> str:
    """The name of S3A's pom: Spark 3.5 has Hadoop 3.3, and that another version of AWS's SDK."""
    return "s3a-3.5" if release == (3, 5) else "s3a"


def running() -> tuple[str, str]:
    """The release of the Spark that is installed, and the version of its Scala."""
    return ".".join(map(str, RELEASE)), scala_version()


def knows_s3a() -> bool:
    """Whether jars of S3A are known for the running Spark."""
    return RELEASE in S3A and (RELEASE, scala_version()) not in NO_S3A


def _of_scala(versions: dict[str, str]) -> dict[str, str]:
    """With Scala's version, where it is not the one of the poms."""
    scala = scala_version()
    return versions if scala == "2.13" else {**versions, "scala": scala}
