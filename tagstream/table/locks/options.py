"""How writers of one table exclude each other: Hudi's keys of locks, with the defaults and checks of Hudi 1.2.0."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from tagstream.table.config import Kind
from tagstream.table.errors import ConfigError
from tagstream.table.option_fields import option

Mode = Literal["SINGLE_WRITER", "OPTIMISTIC_CONCURRENCY_CONTROL"]
Keys = Literal["overlapping", "disjoint"]
BillingMode = Literal["PAY_PER_REQUEST", "PROVISIONED"]

MODE_KEY = "hoodie.write.concurrency.mode"
_LOCK = "hoodie.write.lock."
PROVIDER_KEY, STRATEGY_KEY = f"{_LOCK}provider", f"{_LOCK}conflict.resolution.strategy"
FILE_SYSTEM, ZOOKEEPER, ZOOKEEPER_IMPLICIT, STORAGE, IN_PROCESS, DYNAMODB, DYNAMODB_IMPLICIT = (
    "FileSystemBasedLockProvider",
    "ZookeeperBasedLockProvider",
    "ZookeeperBasedImplicitBasePathLockProvider",
    "StorageBasedLockProvider",
    "InProcessLockProvider",
    "DynamoDBBasedLockProvider",
    "DynamoDBBasedImplicitPartitionKeyLockProvider",
)
_HERE, _AWS = "org.apache.hudi.client.transaction.lock.", "org.apache.hudi.aws.transaction.lock."
# The packages of Hudi's classes, by their short names.
PROVIDERS = {
    FILE_SYSTEM: _HERE,
    ZOOKEEPER: _HERE,
    ZOOKEEPER_IMPLICIT: _HERE,
    STORAGE: _HERE,
    IN_PROCESS: _HERE,
    DYNAMODB: _AWS,
    DYNAMODB_IMPLICIT: _AWS,
}
# Hudi's strategies: which of two overlapping writes stops.
_STRATEGY_PACKAGE = "org.apache.hudi.client.transaction."
PREFER_WRITER = "PreferWriterConflictResolutionStrategy"
_STRATEGIES = (
    "SimpleConcurrentFileWritesConflictResolutionStrategy",
    "BucketIndexConcurrentFileWritesConflictResolutionStrategy",
    PREFER_WRITER,
)
_REFUSED = {
    "HiveMetastoreBasedLockProvider": "locks of a Hive Metastore are not supported; use ZookeeperBasedLockProvider with "
    "the ZooKeeper that the metastore's locks use, in all writers",
    "NoopLockProvider": "it excludes nobody, and two writers would damage the table; for a single writer set "
    f"{MODE_KEY}=SINGLE_WRITER without a provider",
}
# Shortest validity, and its ratio to the interval of renewals: Hudi's StorageBasedLockConfig.
_LEAST_VALIDITY_S, _RENEWALS = 10, 10


def provider_name(text: str) -> str:
    """The short name of a provider's class, which may be given in full; ConfigError for one that is not supported."""
    package, _, short = text.strip().rpartition(".")
    if short in _REFUSED:
        raise ConfigError(f"{PROVIDER_KEY} = {text}: {_REFUSED[short]}")
    if short not in PROVIDERS or (package and f"{package}." != PROVIDERS[short]):
        known = ", ".join(PROVIDERS[name] + name for name in PROVIDERS)
        near = difflib.get_close_matches(short, list(PROVIDERS), n=1)
        hint = f"; did you mean {PROVIDERS[near[0]]}{near[0]}?" if near else ""
        raise ConfigError(f"{PROVIDER_KEY} = {text} is not a lock provider of this version{hint} Known: {known}")
    return short


def strategy_name(text: str) -> str:
    """The short name of a conflict strategy's class, which may be given in full; ConfigError for an unknown one."""
    package, _, short = text.strip().rpartition(".")
    if short not in _STRATEGIES or (package and f"{package}." != _STRATEGY_PACKAGE):
        known = ", ".join(_STRATEGY_PACKAGE + name for name in _STRATEGIES)
        raise ConfigError(f"{STRATEGY_KEY} = {text} is not a strategy of this version. Known: {known}")
    return short


@dataclass(frozen=True, kw_only=True)
class LockOptions:
    """Which lock a writer takes, where it is, and how long it waits.

    Names that end in ``_ms`` are milliseconds, in ``_s`` seconds. ``provider``: the short name of Hudi's class; None
    where the user named none, see :attr:`used_provider`. ``file_expire_min``: minutes, 0 for never. Any other None means
    what the note of the key says. Raises ConfigError for values that do not fit together, and for a provider without the
    keys that it needs.
    """

    mode: Mode = option(
        MODE_KEY,
        Kind.CHOICE,
        "Whether other writers may commit to the table at the same time. Under `OPTIMISTIC_CONCURRENCY_CONTROL` commits "
        "are published under a lock.",
        default="SINGLE_WRITER",
        values={name: name for name in ("SINGLE_WRITER", "OPTIMISTIC_CONCURRENCY_CONTROL")},
        refused_values={
            "NON_BLOCKING_CONCURRENCY_CONTROL": "it needs a merge-on-read table with a bucket index whose writers only "
            "append log files with fixed names, which this writer does not do; use OPTIMISTIC_CONCURRENCY_CONTROL"
        },
    )
    provider: str | None = option(
        PROVIDER_KEY,
        Kind.STRING,
        "Hudi's class of the lock; all writers of the table must use the same. Its short name is enough.",
        default_note="no lock; ZookeeperBasedLockProvider under OPTIMISTIC_CONCURRENCY_CONTROL",
        convert=provider_name,
    )
    wait_time_ms: int = option(
        f"{_LOCK}wait_time_ms", Kind.INT, "Milliseconds that one try waits for the lock.", default=60_000, minimum=1
    )
    client_retries: int = option(
        f"{_LOCK}client.num_retries", Kind.INT, "Number of further tries.", default=50, minimum=0
    )
    client_retry_wait_ms: int = option(
        f"{_LOCK}client.wait_time_ms_between_retry", Kind.INT, "Milliseconds between tries.", default=5000, minimum=0
    )
    retries: int = option(
        f"{_LOCK}num_retries",
        Kind.INT,
        "Number of attempts to connect again to ZooKeeper in one try.",
        default=15,
        minimum=0,
    )
    retry_wait_ms: int = option(
        f"{_LOCK}wait_time_ms_between_retry",
        Kind.INT,
        "Milliseconds before the first of these attempts; the wait is doubled each time.",
        default=1000,
        minimum=1,
    )
    max_retry_wait_ms: int = option(
        f"{_LOCK}max_wait_time_ms_between_retry",
        Kind.INT,
        "Longest wait between these attempts, in milliseconds.",
        default=16_000,
        minimum=1,
    )
    strategy: str | None = option(
        STRATEGY_KEY,
        Kind.STRING,
        f"Hudi's class for overlapping writes. With `{PREFER_WRITER}` a batch does not wait for a pending clustering, and a "
        "clustering stops for batches: name it in all writers and services of the table. The other two name the rules "
        "that are used anyway: the later of two writes to one file group, or bucket, is repeated.",
        convert=strategy_name,
    )
    clustering_yields_to_pending: bool = option(
        "hoodie.clustering.fail.on.pending.ingestion.during.conflict.resolution",
        Kind.BOOL,
        f"With `{PREFER_WRITER}`: whether a clustering also stops for a batch of another writer that has only begun.",
        default=False,
    )
    file_path: str | None = option(
        f"{_LOCK}filesystem.path",
        Kind.PATH,
        "Folder of the lock file of FileSystemBasedLockProvider.",
        default_note=".hoodie of the table",
    )
    file_expire_min: int = option(
        f"{_LOCK}filesystem.expire",
        Kind.INT,
        "Minutes after which a lock file counts as abandoned and is taken over; 0: never.",
        default=0,
        minimum=0,
    )
    zookeeper_url: str | None = option(
        f"{_LOCK}zookeeper.url", Kind.STRING, "Servers of ZooKeeper: `host:port`, separated by commas."
    )
    zookeeper_base_path: str | None = option(
        f"{_LOCK}zookeeper.base_path", Kind.STRING, "Node above the lock's node. It begins with `/`."
    )
    zookeeper_lock_key: str | None = option(
        f"{_LOCK}zookeeper.lock_key", Kind.STRING, "Name of the lock's node.", default_note="the table's name"
    )
    zookeeper_session_timeout_ms: int = option(
        f"{_LOCK}zookeeper.session_timeout_ms",
        Kind.INT,
        "Milliseconds after which ZooKeeper takes the lock from a writer that is no longer connected. The server has "
        "limits of its own.",
        default=60_000,
        minimum=1,
    )
    zookeeper_connection_timeout_ms: int = option(
        f"{_LOCK}zookeeper.connection_timeout_ms",
        Kind.INT,
        "Milliseconds to wait for a connection and for an answer of ZooKeeper.",
        default=15_000,
        minimum=1,
    )
    dynamodb_table: str | None = option(
        f"{_LOCK}dynamodb.table", Kind.STRING, "DynamoDB's table of locks. It is created if it does not exist."
    )
    dynamodb_partition_key: str | None = option(
        f"{_LOCK}dynamodb.partition_key", Kind.STRING, "Key of the lock's item.", default_note="the table's name"
    )
    dynamodb_region: str | None = option(
        f"{_LOCK}dynamodb.region", Kind.STRING, "Region of DynamoDB.", default_note="AWS_REGION, else us-east-1"
    )
    dynamodb_billing_mode: BillingMode = option(
        f"{_LOCK}dynamodb.billing_mode",
        Kind.CHOICE,
        "Billing mode of a new table of locks.",
        default="PAY_PER_REQUEST",
        values={name: name for name in ("PAY_PER_REQUEST", "PROVISIONED")},
    )
    dynamodb_read_capacity: int = option(
        f"{_LOCK}dynamodb.read_capacity", Kind.INT, "Read capacity of a PROVISIONED table.", default=20, minimum=1
    )
    dynamodb_write_capacity: int = option(
        f"{_LOCK}dynamodb.write_capacity", Kind.INT, "Write capacity of a PROVISIONED table.", default=10, minimum=1
    )
    dynamodb_creation_timeout_ms: int = option(
        f"{_LOCK}dynamodb.table_creation_timeout",
        Kind.INT,
        "Milliseconds to wait until a new table of locks can be used.",
        default=600_000,
        minimum=1,
    )
    dynamodb_endpoint_url: str | None = option(
        f"{_LOCK}dynamodb.endpoint_url", Kind.STRING, "Address of DynamoDB.", default_note="that of the region"
    )
    storage_validity_s: int = option(
        f"{_LOCK}storage.validity.timeout.secs",
        Kind.INT,
        "Seconds for which the lock of StorageBasedLockProvider is valid without a renewal.",
        default=300,
    )
    storage_renew_s: int = option(
        f"{_LOCK}storage.renew.interval.secs",
        Kind.INT,
        "Seconds between its renewals.",
        default=30,
        aliases=(f"{_LOCK}storage.heartbeat.poll.secs",),
    )

    keys: Keys = option(
        "tagstream.writers.keys",
        Kind.CHOICE,
        "Whether the streams that share a table may have records of the same keys. `disjoint`: each key has records in one "
        "stream only, for example by topic partition or by table partition. Then a stream does not read the other streams' "
        "commits, and inserts of several streams at the same time are no conflict. A key that two such streams insert has "
        "two rows.",
        default="overlapping",
        values={"OVERLAPPING": "overlapping", "DISJOINT": "disjoint"},
    )

    @property
    def prefers_writers(self) -> bool:
        """Whether batches have precedence over the table services of other writers."""
        return self.strategy == PREFER_WRITER and self.used_provider is not None

    @property
    def has_disjoint_keys(self) -> bool:
        """Whether the user says that no other stream has records of this stream's keys."""
        return self.keys == "disjoint"

    def __post_init__(self) -> None:
        validity, renew = f"{_LOCK}storage.validity.timeout.secs", f"{_LOCK}storage.renew.interval.secs"
        if self.storage_renew_s < 1:
            raise ConfigError(f"{renew} = {self.storage_renew_s}: it must be at least 1 second")
        if self.storage_validity_s < _RENEWALS * self.storage_renew_s:
            raise ConfigError(
                f"{validity} = {self.storage_validity_s}: it must be at least {_RENEWALS} x {renew} "
                f"({self.storage_renew_s}), so that a late renewal does not lose the lock"
            )
        if self.storage_validity_s < _LEAST_VALIDITY_S:
            raise ConfigError(
                f"{validity} = {self.storage_validity_s}: it must be at least {_LEAST_VALIDITY_S} seconds"
            )
        used = self.used_provider
        if used in (ZOOKEEPER, ZOOKEEPER_IMPLICIT):
            self._check_zookeeper(used)
        if used in (DYNAMODB, DYNAMODB_IMPLICIT):
            self._need("dynamodb.table", self.dynamodb_table, used)

    @property
    def used_provider(self) -> str | None:
        """The provider that takes the lock, by its short name; None when no lock is taken.

        A named provider is used in every mode; without one Hudi's default is used where there may be other writers.
        """
        if self.provider is not None:
            return provider_name(self.provider)
        return None if self.mode == "SINGLE_WRITER" else ZOOKEEPER

    @property
    def excludes_processes(self) -> bool:
        """Whether the lock excludes writers in other processes."""
        return self.used_provider not in (None, IN_PROCESS)

    def _check_zookeeper(self, used: str) -> None:
        url = self._need("zookeeper.url", self.zookeeper_url, used)
        if "://" in url or any(not host.strip() for host in url.partition("/")[0].split(",")):
            raise ConfigError(
                f"{_LOCK}zookeeper.url = {url}: it must be host:port, or several of them separated by commas"
            )
        if used == ZOOKEEPER:
            path = self._need("zookeeper.base_path", self.zookeeper_base_path, used)
            if not path.startswith("/") or "//" in path:
                raise ConfigError(f"{_LOCK}zookeeper.base_path = {path}: it must be the path of a node, as /hudi/locks")

    def _need(self, name: str, value: str | None, used: str) -> str:
        if value is None:
            by = "" if self.provider else f", Hudi's default under {MODE_KEY} = {self.mode},"
            other = "" if self.provider else f"; or set {PROVIDER_KEY} to the provider of the table's other writers"
            raise ConfigError(f"{used}{by} needs {_LOCK}{name}: set it{other}")
        return value
