"""The lock that options name."""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Callable, Mapping

import xxhash

from tagstream.table.errors import DRIVER, ConfigError, missing_package
from tagstream.table.locks.file_system import FileSystemLock
from tagstream.table.locks.in_process import InProcessLock
from tagstream.table.locks.lock import Lock, Surroundings, TableLock
from tagstream.table.locks.options import (
    DYNAMODB,
    DYNAMODB_IMPLICIT,
    FILE_SYSTEM,
    IN_PROCESS,
    PROVIDER_KEY,
    STORAGE,
    ZOOKEEPER,
    LockOptions,
)
from tagstream.table.locks.storage_based import StorageBasedLock
from tagstream.table.storage.opening import open_storage, unsynced
from tagstream.table.storage.storage import META_FOLDER, Storage

_SEED = 0xFFFFFFFFDABADABA  # Hudi's HashID: an int in Java, so its sign fills the upper half
_IMPLICIT_KEY = "lock_key"  # Hudi's ZookeeperBasedImplicitBasePathLockProvider
_REGION = "us-east-1"


def open_lock(
    options: LockOptions, table_name: str, base_path: str, storage: Storage, surroundings: Surroundings
) -> Lock | None:
    """The lock of a table; None when the options ask for none. Nothing is connected or taken yet.

    ``base_path``: the table's as the user gave it. Hudi's implicit providers hash its text, so it must have the spelling
    that the other writers use (``s3a://`` counts as ``s3://``). ``storage``: that of the table. Raises ConfigError for a
    missing package, and for a provider that does not fit the table's storage.
    """
    used = options.used_provider
    if used is None:
        return None
    if used == IN_PROCESS:
        return InProcessLock(base_path, surroundings)
    if used == FILE_SYSTEM:
        return _file_system(options, storage, surroundings)
    if used == STORAGE:
        return _storage_based(options, storage, surroundings)
    if used in (DYNAMODB, DYNAMODB_IMPLICIT):
        key = options.dynamodb_partition_key or table_name
        return _dynamodb(options, key if used == DYNAMODB else path_hash(base_path), surroundings)
    if used == ZOOKEEPER:
        path = f"{(options.zookeeper_base_path or '').rstrip('/')}/{options.zookeeper_lock_key or table_name}"
    else:
        path = f"/tmp/{path_hash(base_path)}/{_IMPLICIT_KEY}"
    return _zookeeper(options, path, surroundings)


def open_table_lock(
    options: LockOptions,
    table_name: str,
    base_path: str,
    storage: Storage,
    *,
    who: str,
    clock_ms: Callable[[], int],
    env: Mapping[str, str],
) -> TableLock:
    """The lock of a table for this process; one for its threads alone where the options name none.

    ``who``: the stream or command, for other writers that wait for it. The other arguments and errors: see
    :func:`open_lock`.
    """
    around = Surroundings(
        writer=f"{who} on {socket.gethostname()}, process {os.getpid()}",
        new_id=lambda: str(uuid.uuid4()),
        env=env,
        wall_ms=clock_ms,
    )
    return TableLock(open_lock(options, table_name, base_path, storage, around), options)


def path_hash(base_path: str) -> str:
    """Hudi's name for a table in the locks of its implicit providers: 16 hexadecimal digits."""
    text = re.sub(r"^s3a://", "s3://", base_path, flags=re.IGNORECASE)
    return xxhash.xxh64_hexdigest(text.encode(), _SEED).upper()


def _file_system(options: LockOptions, storage: Storage, surroundings: Surroundings) -> Lock:
    folder = storage.below(META_FOLDER) if options.file_path is None else open_storage(options.file_path)
    # An object store has no folders and no creation that Hadoop's client does in one step.
    if folder.publishes_by_copy:
        raise ConfigError(
            f"{PROVIDER_KEY} = {FILE_SYSTEM}: {folder.root} is on an object store, where Hudi cannot create a file "
            f"exclusively; use {STORAGE}, in all writers of the table"
        )
    return FileSystemLock(unsynced(folder), options.file_expire_min, surroundings)


def _storage_based(options: LockOptions, storage: Storage, surroundings: Surroundings) -> Lock:
    if not storage.publishes_by_copy:
        raise ConfigError(
            f"{PROVIDER_KEY} = {STORAGE}: {storage.root} is not on an object store, and Hudi has this lock only for S3, "
            f"Google Cloud Storage and Azure; use {FILE_SYSTEM}, in all writers of the table"
        )
    return StorageBasedLock(storage, options.storage_validity_s, options.storage_renew_s, surroundings)


def _zookeeper(options: LockOptions, path: str, surroundings: Surroundings) -> Lock:
    try:
        from tagstream.table.locks.zookeeper import ZookeeperLock, ZookeeperSettings
    except ImportError as e:
        raise missing_package(f"{PROVIDER_KEY} = {options.used_provider}", "kazoo", e, "zookeeper", DRIVER) from None
    settings = ZookeeperSettings(
        hosts=options.zookeeper_url or "",
        path=path,
        session_timeout_s=options.zookeeper_session_timeout_ms / 1000,
        connection_timeout_s=options.zookeeper_connection_timeout_ms / 1000,
        retries=options.retries,
        retry_wait_s=options.retry_wait_ms / 1000,
        max_retry_wait_s=options.max_retry_wait_ms / 1000,
    )
    return ZookeeperLock(settings, surroundings)


def _dynamodb(options: LockOptions, key: str, surroundings: Surroundings) -> Lock:
    try:
        from tagstream.table.locks.dynamodb import DynamoDbLock, DynamoDbSettings
    except ImportError as e:
        raise missing_package(f"{PROVIDER_KEY} = {options.used_provider}", "boto3", e, "dynamodb", DRIVER) from None
    settings = DynamoDbSettings(
        table=options.dynamodb_table or "",
        key=key,
        lease_ms=options.wait_time_ms,
        region=options.dynamodb_region or surroundings.env.get("AWS_REGION") or _REGION,
        endpoint=options.dynamodb_endpoint_url,
        billing_mode=options.dynamodb_billing_mode,
        read_capacity=options.dynamodb_read_capacity,
        write_capacity=options.dynamodb_write_capacity,
        creation_timeout_ms=options.dynamodb_creation_timeout_ms,
    )
    return DynamoDbLock(settings, surroundings)
