"""A real S3 server on loopback: MinIO, built once by Go from its own module (4 to 12 minutes), started in a second.

The program is kept in ``.servers/`` of the checkout, or where TAGSTREAM_SERVERS names a folder. MinIO is AGPL: it is run
by tests, nothing of it is shipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from pyarrow.fs import S3FileSystem

from tests.support.kafka_broker import free_ports
from tests.support.paths import ROOT
from tests.support.process import Process

# MinIO's newest commit that the module proxy has: its tags are no versions that Go knows.
MODULE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
START_SECONDS = 60.0
KEY, SECRET, BUCKET = "tagstream", "tagstream-secret", "tagstream"


def servers(env: Mapping[str, str] = os.environ) -> Path:
    """Where servers that are built here are kept."""
    return Path(env.get("TAGSTREAM_SERVERS") or ROOT / ".servers").absolute()


def minio(env: Mapping[str, str] = os.environ) -> Path:
    """The program, built the first time. Raises RuntimeError without Go."""
    program = servers(env) / f"minio-{VERSION.rpartition('-')[2]}" / "minio"
    if program.exists():
        return program
    go = shutil.which("go", path=env.get("PATH"))
    if go is None:
        raise RuntimeError("MinIO is built by Go 1.24 or newer, and there is no go on the PATH: install golang")
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as scratch:  # of its own: MinIO's go.mod has replace lines
        made = Path(scratch, "minio")
        for command in (
            ("mod", "init", "servers"),
            ("get", "-tool", f"{MODULE}@{VERSION}"),
            ("build", "-ldflags", "-s -w", "-o", str(made), MODULE),
        ):
            subprocess.run([go, *command], cwd=scratch, env=dict(env), check=True, capture_output=True)
        made.rename(program)
    return program


class S3Server:
    """One server with its folder and one bucket. As a context manager: started, and killed at the end."""

    bucket = BUCKET

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        (self.port,) = free_ports(1)
        self._program = minio()
        (self.folder / "data" / BUCKET).mkdir(parents=True)  # a folder there is a bucket
        self._process: Process | None = None

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}"

    def settings(self, endpoint: str | None = None) -> dict[str, str]:
        """Hadoop's settings for it, or for a proxy before it."""
        return {
            "fs.s3a.endpoint": endpoint or self.endpoint,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.access.key": KEY,
            "fs.s3a.secret.key": SECRET,
        }

    @property
    def reader(self) -> dict[str, str]:
        """What hudi-rs is told to read from it."""
        return {
            "aws_endpoint": self.endpoint,
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }

    def start(self) -> None:
        """Start it, on the data that is there, and wait until it answers."""
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "MINIO_ROOT_USER": KEY,
            "MINIO_ROOT_PASSWORD": SECRET,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
        }
        command: list[str | Path] = [
            self._program,
            "server",
            "--quiet",
            "--address",
            f"127.0.0.1:{self.port}",
            self.folder / "data",
        ]
        process = Process(command, self.folder / "minio.log", cwd=self.folder, env=env)
        process.wait_until_up(self._answers, START_SECONDS, "MinIO to answer")
        self._process = process

    def kill(self) -> None:
        """SIGKILL; the data stays."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def pause(self) -> None:
        """Stop answering, without closing a connection."""
        assert self._process is not None
        self._process.pause()

    def resume(self) -> None:
        """Answer again."""
        assert self._process is not None
        self._process.resume()

    def make_folder(self, key: str) -> None:
        """Empty objects for a folder and those above it, whose keys end in a slash: Hadoop's S3A leaves such."""
        store = S3FileSystem(
            access_key=KEY, secret_key=SECRET, endpoint_override=f"127.0.0.1:{self.port}", scheme="http"
        )
        store.create_dir(f"{self.bucket}/{key}", recursive=True)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/minio/health/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def __enter__(self) -> S3Server:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
