"""Where on which object store: the URLs of S3, Google's and Azure's stores, each spelling of a place told as one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from tagstream.table.errors import ConfigError

S3, GCS, AZURE = "s3a", "gs", "abfss"
# A scheme as people write it, and the one that Hadoop's file system for that store has.
SCHEMES = {"s3": S3, "s3a": S3, "s3n": S3, "gs": GCS, "abfss": AZURE, "abfs": AZURE}
_AZURE_HOST = re.compile(r"(?P<account>[a-z0-9]+)\.(?:dfs|blob)\.(?P<rest>[a-z0-9.-]+)$")


@dataclass(frozen=True)
class Place:
    """A bucket (of Azure: a container of an account). ``scheme`` is Hadoop's: s3a, gs or abfss."""

    scheme: str
    bucket: str
    account: str = ""

    @property
    def url(self) -> str:
        """The bucket's URL, as Hadoop and Spark take it."""
        return f"{self.scheme}://{self.bucket}{'@' + self.account if self.account else ''}"


def parse(url: str) -> tuple[Place, str]:
    """The bucket and the key of a URL; ConfigError when it names none. Keys stand in URLs as they are, nothing is quoted."""
    given, _, rest = url.partition("://")
    scheme = SCHEMES[given]
    host, _, path = rest.partition("/")
    key = "/".join(part for part in path.split("/") if part)
    if any(part in (".", "..") for part in key.split("/")) or "\0" in key:
        raise ConfigError(f"{url}: a path on an object store has no parts named . or ..; write it out")
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
    """The name of the storage account of a place on Azure."""
    found = _AZURE_HOST.match(place.account)
    assert found is not None
    return found["account"]


def _shown(url: str) -> str:
    """A wrong URL for a message: without what may be a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
