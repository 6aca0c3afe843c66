"""Places on HDFS and object stores, and the settings of their clients, under Hadoop's names.

The command line stores the file system settings of the properties and of Spark (``fs.s3a.endpoint``,
``dfs.replication``, ... without ``spark.hadoop.``) in one environment variable of the process and of Spark's workers.
So keys and tokens are in no file, no pickle and no log: a storage is sent as its URL and the settings that are not
secret.

Each place has one spelling: ``hdfs://HOST:PORT/folder`` (or the name of a cluster instead of the host), and
Hadoop's scheme for the URLs of S3, Google's and Azure's stores.

Options are sent to the tasks with a storage. Secrets are never sent: each process that makes a client reads them. A
setting of one bucket (``fs.s3a.bucket.NAME.endpoint``) takes precedence over that of all buckets. Fixed keys of a
profile of ``~/.aws`` are read here; other profiles need AWS's own client.
"""

from __future__ import annotations

import configparser
import json
import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from tagstream.table.errors import ConfigError

VARIABLE = "TAGSTREAM_STORE_SETTINGS"
_SPARK = "spark.hadoop."
_OURS = ("fs.", "dfs.", "hadoop.security.", "google.cloud.auth.")


def store_settings(spark_conf: Mapping[str, str]) -> dict[str, str]:
    """The file system settings in Spark's configuration, by Hadoop's names."""
    found = {name.removeprefix(_SPARK): value for name, value in spark_conf.items() if name.startswith(_SPARK)}
    return {name: value for name, value in found.items() if name.startswith(_OURS)}


def keep_settings(settings: Mapping[str, str], env: MutableMapping[str, str]) -> None:
    """Make these the settings of every storage that this process and its children open: set :data:`VARIABLE` in ``env``."""
    if settings:
        env[VARIABLE] = json.dumps(dict(settings))
    else:
        env.pop(VARIABLE, None)


def kept_settings(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings of this process; empty when none were given. Clients then use the environment's other variables."""
    text = (os.environ if env is None else env).get(VARIABLE)
    found: dict[str, str] = json.loads(text) if text else {}
    return found


HDFS_SCHEME = "hdfs"
_SECRET = ("password", "secret", "keytab")
_SETTINGS = ("dfs.", "fs.defaultFS", "fs.viewfs.", "hadoop.security.authentication")

Options = tuple[tuple[str, str], ...]


def parse_hdfs_url(url: str) -> tuple[str, str]:
    """(URL of the NameNode or cluster, path); ConfigError for a wrong URL. Paths have no quoted characters."""
    authority, _, path = url.partition("://")[2].partition("/")
    parts = [part for part in path.split("/") if part]
    if "@" in authority or any(part in (".", "..") for part in parts):
        raise ConfigError(f"hdfs://{authority.rpartition('@')[2]}/{path}: write hdfs://HOST:PORT/FOLDER")
    return f"{HDFS_SCHEME}://{authority}", "/" + "/".join(parts)


def hdfs_options(settings: Mapping[str, str]) -> Options:
    """Hadoop's settings for the client; without any the client reads the files in HADOOP_CONF_DIR."""
    names = (name for name in settings if name.startswith(_SETTINGS) and not any(s in name for s in _SECRET))
    return tuple(sorted((name, settings[name]) for name in names))


S3, GCS, AZURE = "s3a", "gs", "abfss"
# A scheme as users write it, and the scheme of Hadoop's file system for that store.
SCHEMES = {"s3": S3, "s3a": S3, "s3n": S3, "gs": GCS, "abfss": AZURE, "abfs": AZURE}
_AZURE_HOST = re.compile(r"(?P<account>[a-z0-9]+)\.(?:dfs|blob)\.(?P<rest>[a-z0-9.-]+)$")


@dataclass(frozen=True)
class Place:
    """A bucket (on Azure: a container of an account). ``scheme`` is Hadoop's: s3a, gs or abfss."""

    scheme: str
    bucket: str
    account: str = ""

    @property
    def url(self) -> str:
        """The bucket's URL, as Hadoop and Spark use it."""
        return f"{self.scheme}://{self.bucket}{'@' + self.account if self.account else ''}"


def parse_object_url(url: str) -> tuple[Place, str]:
    """(bucket, key) of a URL; ConfigError when it names no bucket. Keys in URLs have no quoted characters."""
    given, _, rest = url.partition("://")
    scheme = SCHEMES[given]
    host, _, path = rest.partition("/")
    key = "/".join(part for part in path.split("/") if part)
    if any(part in (".", "..") for part in key.split("/")) or "\0" in key:
        raise ConfigError(f"{url}: a path on an object store cannot have parts named . or ..; write it out")
    if scheme != AZURE:
        if not host or "@" in host:
            raise ConfigError(f"{_shown(url)}: names no bucket; write {given}://BUCKET/FOLDER")
        return Place(scheme, host), key
    container, _, account = host.partition("@")
    if not container or _AZURE_HOST.match(account) is None:
        raise ConfigError(
            f"{_shown(url)}: names no container of a storage account; write "
            f"{given}://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER"
        )
    return Place(scheme, container, account.replace(".blob.", ".dfs.", 1)), key


def account_name(place: Place) -> str:
    """Name of the storage account of a place on Azure."""
    found = _AZURE_HOST.match(place.account)
    assert found is not None
    return found["account"]


def _shown(url: str) -> str:
    """A wrong URL for a message, without a possible password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


_AWS_HOST = re.compile(r"s3(?:[.-](?P<region>[a-z]{2}-[a-z0-9-]+?))?\.amazonaws\.com(?:\.cn)?$")
_KEY_FILES = ("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile")
_TENANT = re.compile(r"https?://[^/]+/(?P<tenant>[^/]+)/oauth2")
ANONYMOUS, PROFILE = "AnonymousAWSCredentialsProvider", "ProfileCredentialsProvider"


def object_options(place: Place, settings: Mapping[str, str], env: Mapping[str, str]) -> Options:
    """The options of a client for this bucket, without secrets, sorted."""
    if place.scheme == S3:
        made = _s3_options(place, settings, env)
    elif place.scheme == GCS:
        made = {"base_url": settings.get("fs.gs.storage.root.url", "").rstrip("/")}
    else:
        endpoint = env.get("AZURE_STORAGE_ENDPOINT") or env.get("AZURE_ENDPOINT") or ""
        made = {"account_name": account_name(place), "endpoint": endpoint.rstrip("/")}
    return tuple(sorted((name, value) for name, value in made.items() if value))


def secrets_of(place: Place, settings: Mapping[str, str]) -> dict[str, str]:
    """The keys for this bucket in the settings. Empty: the environment, a role or a metadata service has them."""
    if place.scheme == S3:
        made = _s3_secrets(place, settings)
    elif place.scheme == GCS:
        made = {"service_account": next((settings[name] for name in _KEY_FILES if settings.get(name)), "")}
    else:
        made = _azure_secrets(place, settings)
    return {name: value for name, value in made.items() if value}


def profile_of(place: Place, settings: Mapping[str, str], env: Mapping[str, str]) -> str | None:
    """The profile of ``~/.aws`` that has the keys; None when the settings, the environment or a role has them."""
    if place.scheme != S3 or _s3_secrets(place, settings)["access_key_id"]:
        return None
    named = env.get("AWS_PROFILE")
    if PROFILE in _s3a(place, settings, "aws.credentials.provider"):
        return named or "default"
    return named if not env.get("AWS_ACCESS_KEY_ID") else None


def _s3a(place: Place, settings: Mapping[str, str], name: str) -> str:
    return settings.get(f"fs.s3a.bucket.{place.bucket}.{name}", settings.get(f"fs.s3a.{name}", "")).strip()


def _s3_options(place: Place, settings: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    named = [env.get(name, "") for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")]
    endpoint = _s3a(place, settings, "endpoint") or next((value for value in named if value), "")
    if endpoint and "://" not in endpoint:
        plain = _s3a(place, settings, "connection.ssl.enabled").lower() == "false"
        endpoint = f"{'http' if plain else 'https'}://{endpoint}"
    region = _s3a(place, settings, "endpoint.region") or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or ""
    amazon = _AWS_HOST.match(urlsplit(endpoint).hostname or "")
    if amazon is not None:  # the client derives the same endpoint from the region
        region, endpoint = region or amazon["region"] or "", ""
    path_style = _s3a(place, settings, "path.style.access").lower() == "true"
    hosted = not path_style and "." not in place.bucket and not _is_address(endpoint)
    if endpoint and hosted and _s3a(place, settings, "path.style.access"):
        parts = urlsplit(endpoint)
        endpoint = f"{parts.scheme}://{place.bucket}.{parts.netloc}{parts.path}"
    elif endpoint:
        hosted = False
    return {
        "endpoint": endpoint.rstrip("/"),
        "region": region or "us-east-1",
        "virtual_hosted_style_request": str(hosted).lower(),
        "skip_signature": str(ANONYMOUS in _s3a(place, settings, "aws.credentials.provider")).lower(),
        "server_side_encryption": _encryption(_s3a(place, settings, "encryption.algorithm")),
        "sse_kms_key_id": _s3a(place, settings, "encryption.key")
        if "KMS" in _s3a(place, settings, "encryption.algorithm")
        else "",
        "request_payer": _s3a(place, settings, "requester.pays.enabled").lower().replace("false", ""),
    }


def _encryption(name: str) -> str:
    return {"AES256": "AES256", "SSE-S3": "AES256", "SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse"}.get(name, "")


def _is_address(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    return host == "localhost" or ":" in host or re.fullmatch(r"[\d.]+", host) is not None


def _s3_secrets(place: Place, settings: Mapping[str, str]) -> dict[str, str]:
    names = {"access_key_id": "access.key", "secret_access_key": "secret.key", "session_token": "session.token"}
    return {ours: _s3a(place, settings, theirs) for ours, theirs in names.items()}


def _azure_secrets(place: Place, settings: Mapping[str, str]) -> dict[str, str]:
    def of(name: str) -> str:
        return settings.get(f"fs.azure.{name}.{place.account}", settings.get(f"fs.azure.{name}", ""))

    tenant = _TENANT.match(of("account.oauth2.client.endpoint"))
    return {
        "account_key": of("account.key"),
        "sas_key": of("sas.fixed.token"),
        "client_id": of("account.oauth2.client.id"),
        "client_secret": of("account.oauth2.client.secret"),
        "tenant_id": tenant["tenant"] if tenant else "",
    }


_NAMES = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}


def profile_keys(profile: str, env: Mapping[str, str]) -> dict[str, str]:
    """The keys of a profile; ConfigError when its files have no fixed keys for it."""
    home = env.get("HOME") or os.path.expanduser("~")
    credentials = env.get("AWS_SHARED_CREDENTIALS_FILE") or f"{home}/.aws/credentials"
    config = env.get("AWS_CONFIG_FILE") or f"{home}/.aws/config"
    for path, section in ((credentials, profile), (config, profile if profile == "default" else f"profile {profile}")):
        found = configparser.RawConfigParser()
        try:
            found.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            raise ConfigError(
                f"{path} cannot be read as a file of AWS profiles"
            ) from None  # no cause: its lines are keys
        if found.has_option(section, "aws_access_key_id"):
            return {ours: found.get(section, name) for name, ours in _NAMES.items() if found.has_option(section, name)}
    raise ConfigError(
        f"profile {profile} has no fixed keys in {credentials} or {config}; for one that uses SSO or a role, put its keys "
        f"into the environment: eval $(aws configure export-credentials --profile {profile} --format env)"
    )
