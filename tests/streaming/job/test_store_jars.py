"""What Spark is given for a checkpoint on S3: jars nobody else brings, settings that only the environment has."""

from __future__ import annotations

import pytest

from tagstream.streaming.job.environment import needs_s3a, store_conf
from tagstream.streaming.source.jars import S3A, s3a_pom
from tests.support.paths import PACKAGE

ON_S3 = "s3a://b/checkpoint"


@pytest.mark.parametrize(
    ("checkpoint", "settings", "needed"),
    [
        (ON_S3, {}, True),
        ("s3://b/c", {"spark.jars": "/x/other.jar"}, True),
        (ON_S3, {"spark.jars": "/x/hadoop-aws-3.5.0.jar"}, False),
        (ON_S3, {"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0"}, False),
        ("/data/checkpoint", {}, False),
        ("hdfs://nn/checkpoint", {}, False),
        ("gs://b/checkpoint", {}, False),
    ],
)
def test_who_needs_the_jars(checkpoint: str, settings: dict[str, str], needed: bool) -> None:
    assert needs_s3a(checkpoint, settings) is needed


def test_spark_gets_what_the_environment_says() -> None:
    env = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_REGION": "eu-west-1", "AWS_SECRET_ACCESS_KEY": "hidden"}
    made = store_conf(ON_S3, {}, env)
    assert made == {
        "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9000",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-west-1",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.performance.flags": "create,mkdir,delete",
    }
    assert store_conf("/data/checkpoint", {}, env) == {}


def test_what_is_set_stays() -> None:
    settings = {"fs.s3a.endpoint": "https://store", "fs.s3a.path.style.access": "true", "fs.s3a.endpoint.region": "x"}
    made = store_conf(ON_S3, settings, {"AWS_ENDPOINT_URL": "http://other"})
    assert not {f"spark.hadoop.{name}" for name in settings} & set(made)


def test_the_jars_are_not_the_whole_sdk() -> None:
    for release in S3A:
        pom = (PACKAGE / "conf" / "poms" / f"{s3a_pom(release)}.xml").read_text("utf-8")
        assert "bundle</artifactId>" not in pom
