"""A real PostgreSQL on loopback, with logical decoding: made in a folder of its own, started, stopped.

Debian's package ``postgresql`` has the programs. They do not run as root: then they run as the package's own user.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

import psycopg

from tests.support.kafka_broker import free_ports
from tests.support.process import Process

USER = "postgres"
START_SECONDS = 60.0
STOP_SECONDS = 40.0
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "fsync": "off",
    "timezone": "UTC",
}


def programs() -> Path:
    """The folder of initdb and postgres, the newest version's. Raises RuntimeError where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        raise RuntimeError("there is no PostgreSQL here: install the package postgresql (apt-get install postgresql)")
    return found[-1].parent if found else Path(str(on_path)).parent


class Postgres:
    """One server. As a context manager: started, stopped at the end, and its data removed."""

    def __init__(self, log: Path) -> None:
        """``log``: the file that it writes to. Its data is in a folder that its user can reach, which tests' own are not."""
        self.log = log
        (self.port,) = free_ports(1)
        self._folder = Path(tempfile.mkdtemp(prefix="tagstream-postgres-"))
        self._as: list[str] = []
        if os.geteuid() == 0:
            owner = pwd.getpwnam(USER)
            os.chown(self._folder, owner.pw_uid, owner.pw_gid)
            self._as = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        self._process: Process | None = None

    @property
    def dsn(self) -> str:
        """What a client connects with."""
        return f"host=127.0.0.1 port={self.port} user={USER} dbname=postgres"

    def connect(self) -> psycopg.Connection:
        """A connection; each statement is a transaction unless one is begun."""
        return psycopg.connect(self.dsn, autocommit=True)

    def answers(self) -> bool:
        """Whether it takes connections."""
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def __enter__(self) -> Postgres:
        made = [*self._as, str(programs() / "initdb"), "-D", str(self._folder / "data"), "-U", USER, "-A", "trust"]
        subprocess.run([*made, "-E", "UTF8", "--locale=C"], check=True, stdout=subprocess.DEVNULL, cwd=self._folder)
        options = [
            part for key, value in {**SETTINGS, "port": str(self.port)}.items() for part in ("-c", f"{key}={value}")
        ]
        command = [*self._as, str(programs() / "postgres"), "-D", str(self._folder / "data"), *options]
        self._process = Process(command, self.log, cwd=self._folder)
        self._process.wait_until_up(self.answers, START_SECONDS, "PostgreSQL's answer")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            with self._process:
                self._process.send(signal.SIGINT)  # which ends the connections, too
                self._process.wait(STOP_SECONDS)
        shutil.rmtree(self._folder)
