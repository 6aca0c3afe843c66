"""URLs of HDFS: ``hdfs://HOST:PORT/folder``, or the name of a cluster instead of a host; each place spelled one way."""

from __future__ import annotations

from collections.abc import Mapping

from tagstream.table.errors import ConfigError

SCHEME = "hdfs"
_SECRET = ("password", "secret", "keytab")
_SETTINGS = ("dfs.", "fs.defaultFS", "fs.viewfs.", "hadoop.security.authentication")

Options = tuple[tuple[str, str], ...]


def parse(url: str) -> tuple[str, str]:
    """The NameNode's (or cluster's) URL and the path; ConfigError for what is none. Nothing is quoted in a path."""
    authority, _, path = url.partition("://")[2].partition("/")
    parts = [part for part in path.split("/") if part]
    if "@" in authority or any(part in (".", "..") for part in parts):
        raise ConfigError(f"hdfs://{authority.rpartition('@')[2]}/{path}: write hdfs://HOST:PORT/FOLDER")
    return f"{SCHEME}://{authority}", "/" + "/".join(parts)


def options_of(settings: Mapping[str, str]) -> Options:
    """Hadoop's settings that the client takes; where there are none it reads the files in HADOOP_CONF_DIR."""
    names = (name for name in settings if name.startswith(_SETTINGS) and not any(s in name for s in _SECRET))
    return tuple(sorted((name, settings[name]) for name in names))
