"""Hadoop's settings and the environment, as the clients of the stores take them; what is secret is kept apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.errors import ConfigError
from tagstream.table.storage.settings import (
    Place,
    keep_settings,
    kept_settings,
    profile_keys,
    profile_of,
    secrets_of,
    store_settings,
)
from tagstream.table.storage.settings import object_options as options_of
from tagstream.table.storage.settings import parse_object_url as parse

S3 = Place("s3a", "b")
AZURE = Place("abfss", "c", "acc.dfs.core.windows.net")
NONE: dict[str, str] = {}


def s3(settings: dict[str, str], env: dict[str, str] = NONE, bucket: str = "b") -> dict[str, str]:
    """The options that matter, of a bucket on S3."""
    found = dict(options_of(Place("s3a", bucket), settings, env))
    return {name: value for name, value in found.items() if name not in ("skip_signature",)}


def test_urls_of_one_place_are_one() -> None:
    assert parse("s3://b/x//y/") == parse("s3a://b/x/y") == (Place("s3a", "b"), "x/y")
    assert parse("s3a://b") == (Place("s3a", "b"), "")
    assert parse("gs://b/a b/%20") == (Place("gs", "b"), "a b/%20")
    blob = parse("abfss://c@acc.blob.core.windows.net/t")
    assert blob == parse("abfs://c@acc.dfs.core.windows.net/t") == (AZURE, "t")
    assert AZURE.url == "abfss://c@acc.dfs.core.windows.net"


def test_a_password_in_a_wrong_url_is_not_shown() -> None:
    with pytest.raises(ConfigError) as e:
        parse("s3a://key:hidden@b/t")
    assert "hidden" not in str(e.value)


def test_without_settings_it_is_amazon() -> None:
    assert s3({}) == {"region": "us-east-1", "virtual_hosted_style_request": "true"}
    assert s3({}, {"AWS_REGION": "eu-west-1"})["region"] == "eu-west-1"
    assert s3({}, bucket="with.dots")["virtual_hosted_style_request"] == "false"  # no certificate is for such a host
    assert s3({"fs.s3a.endpoint": "s3.eu-central-1.amazonaws.com"})["region"] == "eu-central-1"
    assert "endpoint" not in s3({"fs.s3a.endpoint": "s3.amazonaws.com"})


def test_another_server() -> None:
    plain = {"fs.s3a.endpoint": "127.0.0.1:9000", "fs.s3a.connection.ssl.enabled": "false"}
    assert s3(plain)["endpoint"] == "http://127.0.0.1:9000"
    assert s3({"fs.s3a.endpoint": "store.example"})["endpoint"] == "https://store.example"
    assert s3({}, {"AWS_ENDPOINT_URL": "http://store:9000/"})["endpoint"] == "http://store:9000"
    assert s3({}, {"AWS_ENDPOINT_URL": "http://store:9000/"})["virtual_hosted_style_request"] == "false"
    hosted = s3({"fs.s3a.endpoint": "https://store.example", "fs.s3a.path.style.access": "false"})
    assert (hosted["endpoint"], hosted["virtual_hosted_style_request"]) == ("https://b.store.example", "true")
    one = {"fs.s3a.endpoint": "https://all", "fs.s3a.bucket.b.endpoint": "https://one"}
    assert (s3(one)["endpoint"], s3(one, bucket="c")["endpoint"]) == ("https://one", "https://all")


def test_keys_are_apart_from_what_is_sent() -> None:
    settings = {"fs.s3a.access.key": "k", "fs.s3a.secret.key": "hidden", "fs.s3a.bucket.c.access.key": "other"}
    assert secrets_of(S3, settings) == {"access_key_id": "k", "secret_access_key": "hidden"}
    assert secrets_of(Place("s3a", "c"), settings)["access_key_id"] == "other"
    assert "hidden" not in str(options_of(S3, settings, {"AWS_SECRET_ACCESS_KEY": "hidden"}))
    azure = {"fs.azure.account.key.acc.dfs.core.windows.net": "hidden"}
    assert secrets_of(AZURE, azure) == {"account_key": "hidden"}
    assert options_of(AZURE, azure, {}) == (("account_name", "acc"),)
    oauth = {"fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.com/tenant-1/oauth2/token"}
    assert secrets_of(AZURE, oauth) == {"tenant_id": "tenant-1"}
    gcs = {"fs.gs.auth.service.account.json.keyfile": "/keys.json"}
    assert secrets_of(Place("gs", "b"), gcs) == {"service_account": "/keys.json"}


def test_spark_and_python_have_the_same_settings() -> None:
    conf = {"spark.hadoop.fs.s3a.endpoint": "http://x", "spark.hadoop.mapreduce.x": "1", "spark.master": "local"}
    env: dict[str, str] = {}
    keep_settings(store_settings(conf), env)
    assert kept_settings(env) == {"fs.s3a.endpoint": "http://x"}
    keep_settings({}, env)
    assert (env, kept_settings(env)) == ({}, {})


def test_keys_of_a_profile(tmp_path: Path) -> None:
    credentials, config = tmp_path / "credentials", tmp_path / "config"
    credentials.write_text("[default]\naws_access_key_id = d\naws_secret_access_key = %s$x\n")
    config.write_text(
        "[profile two]\naws_access_key_id = t\naws_secret_access_key = s\naws_session_token = e\n[profile sso]\nx=1\n"
    )
    env = {"AWS_SHARED_CREDENTIALS_FILE": str(credentials), "AWS_CONFIG_FILE": str(config)}
    assert profile_keys("default", env) == {"access_key_id": "d", "secret_access_key": "%s$x"}
    assert profile_keys("two", env) == {"access_key_id": "t", "secret_access_key": "s", "session_token": "e"}
    with pytest.raises(ConfigError, match="profile sso has no fixed keys"):
        profile_keys("sso", env)
    credentials.write_text("hidden")
    with pytest.raises(ConfigError) as e:
        profile_keys("default", env)
    assert "hidden" not in str(e.value)


def test_when_a_profile_is_asked() -> None:
    profile = {"fs.s3a.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"}
    assert profile_of(S3, profile, {}) == "default"
    assert profile_of(S3, {}, {"AWS_PROFILE": "p"}) == "p"
    assert profile_of(S3, {}, {"AWS_PROFILE": "p", "AWS_ACCESS_KEY_ID": "k"}) is None
    assert profile_of(S3, {"fs.s3a.access.key": "k"}, {"AWS_PROFILE": "p"}) is None
    assert profile_of(AZURE, profile, {"AWS_PROFILE": "p"}) is None
