"""Fetching listed jars from a repository of Maven's layout, by Python alone.

``TAGSTREAM_MAVEN_URL`` names a mirror, with ``user:password@`` before its host where it wants a login; else Maven Central.
A proxy is taken from ``https_proxy``, as everywhere in Python. A jar counts only with the SHA-256 of its list.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path

from tagstream.streaming.errors import SourceError
from tagstream.streaming.jars.listed import Jar

CENTRAL = "https://repo1.maven.org/maven2"
MIRROR = "TAGSTREAM_MAVEN_URL"
_SECONDS = 60  # without a byte from the repository


def repository(env: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The repository's URL without a login, and the headers of a request. SourceError where it is not a URL."""
    url = (env.get(MIRROR) or CENTRAL).rstrip("/")
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = url.rpartition("@")[2]
        raise SourceError(f"{MIRROR} must be a URL as https://host/path, and ends in {shown!r}")
    login, at, host = parts.netloc.rpartition("@")
    headers = {"User-Agent": "tagstream"}
    if at:
        told = base64.b64encode(urllib.parse.unquote(login).encode()).decode("ascii")
        headers["Authorization"] = f"Basic {told}"
    return urllib.parse.urlunsplit(parts._replace(netloc=host)), headers


def download(jars: Iterable[Jar], folder: Path, env: Mapping[str, str]) -> list[Path]:
    """Fetch the jars into a folder that is there. Each appears by a rename when it is whole.

    SourceError when one can't be had; those before it stay, so the next call fetches the rest.
    """
    url, headers = repository(env)
    return [_one(jar, folder, url, headers) for jar in jars]


def _one(jar: Jar, folder: Path, url: str, headers: Mapping[str, str]) -> Path:
    where = f"{url}/{jar.path}"
    found = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{jar.name}-", delete=False) as scratch:
        try:
            request = urllib.request.Request(where, headers=dict(headers))
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                while data := answer.read(1 << 16):
                    found.update(data)
                    scratch.write(data)
            scratch.flush()
            if found.hexdigest() != jar.sha256:
                raise SourceError(
                    f"{where} has the SHA-256 {found.hexdigest()} and not {jar.sha256}: the repository, or a proxy "
                    f"before it, gives another file. Name another repository by {MIRROR}."
                )
            os.chmod(scratch.name, 0o644)
            os.replace(scratch.name, folder / jar.name)
        except urllib.error.HTTPError as e:
            raise SourceError(
                f"{where} was answered with {e.code} {e.reason}: name a repository that has it by {MIRROR}, "
                f"or copy the file to {folder}"
            ) from e
        except (OSError, http.client.HTTPException) as e:
            reason = e.reason if isinstance(e, urllib.error.URLError) else e
            raise SourceError(
                f"{where} could not be fetched: {reason}. Name a mirror by {MIRROR} or a proxy by https_proxy, or fill "
                "a folder by `tagstream fetch-jars --out FOLDER` on a host with network and name it by TAGSTREAM_JARS"
            ) from e
        finally:
            Path(scratch.name).unlink(missing_ok=True)
    return folder / jar.name
