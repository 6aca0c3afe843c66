"""A Kafka broker to try things out with: `python -m tests.support.run_broker --help`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.kafka_broker import STOP_SECONDS, KafkaBroker


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a plaintext broker until it is interrupted, or leave it running (--detach) and end it later (--stop)."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.run_broker", description=main.__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="its settings, log and messages")
    parser.add_argument("--port", type=int, help="on loopback (default: a free one)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--detach", action="store_true", help="return when it answers, and leave it running")
    what.add_argument("--stop", action="store_true", help="end the detached broker of this folder")
    options = parser.parse_args(arguments)
    pid_file = options.folder / "broker.pid"
    if options.stop:
        return _stop(options.folder, pid_file)
    if _running(options.folder, pid_file) is not None:
        print(f"a broker runs in {options.folder} already; --stop ends it", file=sys.stderr)
        return 1
    broker = KafkaBroker(options.folder, port=options.port)
    broker.start()
    print(f"Kafka broker at {broker.address()}, folder {broker.folder}", flush=True)
    if options.detach:
        pid_file.write_text(f"{broker.pid}\n")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with broker, suppress(KeyboardInterrupt):
        signal.pause()
    return 0


def _running(folder: Path, pid_file: Path) -> psutil.Process | None:
    """The detached broker of a folder; its id may be another process's by now, so the command line decides."""
    with suppress(OSError, psutil.NoSuchProcess):
        broker = psutil.Process(int(pid_file.read_text()))
        if str(folder.resolve()) in " ".join(broker.cmdline()):
            return broker
    return None


def _stop(folder: Path, pid_file: Path) -> int:
    broker = _running(folder, pid_file)
    if broker is None:
        print(f"no detached broker runs in {folder}", file=sys.stderr)
        return 1
    with suppress(psutil.NoSuchProcess):
        broker.terminate()
        broker.wait(STOP_SECONDS)
    pid_file.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
