"""The Hive Metastore, versions 3.1 and 4.0, by Thrift.

The interface is ``hive_metastore.thrift``, which thriftpy2 reads. A table is read again before
it is altered, so fields that a sync does not know are not changed.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tagstream.catalog.catalog import CatalogError, IncompatibleColumnsError, Values
from tagstream.catalog.entry import Column, PartitionEntry, TableEntry
from tagstream.catalog.options import URIS_KEY, metastore_addresses
from tagstream.table.errors import DRIVER, missing_package

_IDL = Path(__file__).with_name("hive_metastore.thrift")
# Hive's FileUtils.escapePathName: the characters that become %XX in the name of a partition.
_ESCAPED = re.compile(r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
_T = TypeVar("_T")


class HiveMetastore:
    """One connection to a metastore, the first address that answers; it is opened by the first call.

    ``user``: the user of the calls. ConfigError if the package is missing.
    """

    def __init__(
        self,
        uris: Sequence[str],
        user: str,
        *,
        timeout_seconds: float = 60.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._uris, self._user, self._timeout_ms, self._tls = tuple(uris), user, int(timeout_seconds * 1000), tls
        self._client: Any = None
        self._types = _load()

    @property
    def name(self) -> str:
        """The metastore and its addresses."""
        return f"Hive Metastore {','.join(self._uris)}"

    def location(self, url: str) -> str:
        """See Catalog."""
        return url

    def has_database(self, database: str) -> bool:
        """See Catalog."""
        return self._found(lambda c: c.get_database(database), f"get_database {database}") is not None

    def create_database(self, database: str) -> None:
        """See Catalog."""
        made = self._types.Database(name=database, description="automatically created by hoodie")
        with contextlib.suppress(_AlreadyThereError):
            self._call(lambda c: c.create_database(made), f"create_database {database}")

    def table(self, database: str, name: str) -> TableEntry | None:
        """See Catalog."""
        raw = self._raw(database, name)
        return None if raw is None else _entry_of(raw)

    def create_table(self, entry: TableEntry) -> None:
        """See Catalog."""
        types = self._types
        raw = types.Table(
            tableName=entry.name,
            dbName=entry.database,
            owner=entry.owner,
            sd=self._descriptor(entry, entry.location),
            partitionKeys=[self._column(key) for key in entry.partition_keys],
            parameters=dict(entry.parameters),
            tableType="EXTERNAL_TABLE",
        )
        self._call(lambda c: c.create_table(raw), f"create_table {entry.full_name}")

    def alter_table(self, entry: TableEntry, *, cascade: bool) -> None:
        """See Catalog."""
        raw = self._raw(entry.database, entry.name)
        if raw is None:
            raise CatalogError(f"{self.name}: table {entry.full_name} no longer exists; the next sync creates it")
        raw.sd.cols = [self._column(column) for column in entry.columns]
        raw.sd.location = entry.location
        raw.sd.inputFormat, raw.sd.outputFormat = entry.input_format, entry.output_format
        raw.sd.serdeInfo.serializationLib = entry.serde
        raw.sd.serdeInfo.parameters = dict(entry.serde_parameters)
        raw.parameters = dict(entry.parameters)
        context = self._types.EnvironmentContext(properties={"CASCADE": "true"} if cascade else {})
        what = f"alter_table {entry.full_name}"
        try:
            self._call(lambda c: c.alter_table_with_environment_context(entry.database, entry.name, raw, context), what)
        except _InvalidOperationError as e:
            raise IncompatibleColumnsError(
                f"{e}: Hive compares columns by their positions. Set "
                f"hoodie.datasource.hive_sync.recreate_table_on_error=true to create the entry again, or "
                f"hive.metastore.disallow.incompatible.col.type.changes=false in the metastore"
            ) from e

    def drop_table(self, database: str, name: str) -> None:
        """See Catalog."""
        self._found(lambda c: c.drop_table(database, name, False), f"drop_table {database}.{name}")

    def partitions(self, entry: TableEntry, values: Sequence[Values] | None = None) -> Mapping[Values, str]:
        """See Catalog."""
        what = f"get_partitions of {entry.full_name}"
        if values is None:
            raw = self._call(lambda c: c.get_partitions(entry.database, entry.name, -1), what)
        else:
            names = [partition_name([key.name for key in entry.partition_keys], each) for each in values]
            raw = (
                self._call(lambda c: c.get_partitions_by_names(entry.database, entry.name, names), what)
                if names
                else []
            )
        return {tuple(each.values): each.sd.location for each in raw}

    def add_partitions(self, entry: TableEntry, added: Sequence[PartitionEntry]) -> None:
        """See Catalog."""
        request = self._types.AddPartitionsRequest(
            dbName=entry.database,
            tblName=entry.name,
            parts=[self._partition(entry, each) for each in added],
            ifNotExists=True,
            needResult=False,
        )
        self._call(lambda c: c.add_partitions_req(request), f"add_partitions to {entry.full_name}")

    def update_partitions(self, entry: TableEntry, changed: Sequence[PartitionEntry]) -> None:
        """See Catalog."""
        if not changed:
            return
        parts = [self._partition(entry, each) for each in changed]
        context = self._types.EnvironmentContext(properties={})
        self._call(
            lambda c: c.alter_partitions_with_environment_context(entry.database, entry.name, parts, context),
            f"alter_partitions of {entry.full_name}",
        )

    def drop_partitions(self, entry: TableEntry, dropped: Sequence[Values]) -> None:
        """See Catalog."""
        for values in dropped:
            self._drop_partition(entry, values)

    def _drop_partition(self, entry: TableEntry, values: Values) -> None:
        self._found(
            lambda c: c.drop_partition(entry.database, entry.name, list(values), False),
            f"drop_partition {'/'.join(values)} of {entry.full_name}",
        )

    def close(self) -> None:
        """See Catalog."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connect(self) -> Any:
        if self._client is not None:
            return self._client
        problems = []
        for host, port in metastore_addresses(self._uris):
            try:
                self._client = self._open(host, port)
            except Exception as e:  # thriftpy2 has several roots of errors
                problems.append(f"{host}:{port}: {_reason(e)}")
            else:
                return self._client
        raise CatalogError(
            f"{URIS_KEY}: no metastore answers ({'; '.join(problems)}); start it, or correct the address. A metastore "
            f"that requires Kerberos or TLS closes the connection at once"
        )

    def _open(self, host: str, port: int) -> Any:
        from thriftpy2.rpc import make_client

        service = self._types.ThriftHiveMetastore
        client = make_client(service, host, port, timeout=self._timeout_ms, ssl_context=self._tls)
        try:
            client.set_ugi(self._user, [self._user])
        except BaseException:
            client.close()
            raise
        return client

    def _call(self, call: Callable[[Any], _T], what: str) -> _T:
        client = self._connect()
        types = self._types
        try:
            return call(client)
        except types.AlreadyExistsException as e:
            raise _AlreadyThereError(f"{self.name}: {what}: {e.message}") from None
        except types.NoSuchObjectException as e:
            raise _MissingError(f"{self.name}: {what}: {e.message}") from None
        except types.InvalidOperationException as e:
            raise _InvalidOperationError(f"{self.name}: {what}: {e.message}") from None
        except (types.MetaException, types.InvalidObjectException) as e:
            raise CatalogError(f"{self.name}: {what}: {e.message}") from None
        except Exception as e:
            self.close_quietly()  # the connection's state is not known
            raise CatalogError(f"{self.name}: {what}: {_reason(e)}; the next sync connects again") from e

    def close_quietly(self) -> None:
        """Close a connection that has failed."""
        with contextlib.suppress(Exception):
            self.close()
        self._client = None

    def _found(self, call: Callable[[Any], _T], what: str) -> _T | None:
        try:
            return self._call(call, what)
        except _MissingError:
            return None

    def _raw(self, database: str, name: str) -> Any:
        request = self._types.GetTableRequest(dbName=database, tblName=name)
        found = self._found(lambda c: c.get_table_req(request), f"get_table {database}.{name}")
        return None if found is None else found.table

    def _column(self, column: Column) -> Any:
        return self._types.FieldSchema(name=column.name, type=column.type, comment=column.comment)

    def _descriptor(self, entry: TableEntry, location: str) -> Any:
        types = self._types
        return types.StorageDescriptor(
            cols=[self._column(column) for column in entry.columns],
            location=location,
            inputFormat=entry.input_format,
            outputFormat=entry.output_format,
            compressed=False,
            numBuckets=0,
            serdeInfo=types.SerDeInfo(serializationLib=entry.serde, parameters=dict(entry.serde_parameters)),
            bucketCols=[],
            sortCols=[],
            parameters={},
        )

    def _partition(self, entry: TableEntry, partition: PartitionEntry) -> Any:
        return self._types.Partition(
            values=list(partition.values),
            dbName=entry.database,
            tableName=entry.name,
            createTime=0,
            lastAccessTime=0,
            sd=self._descriptor(entry, partition.location),
            parameters={},
        )


class _AlreadyThereError(CatalogError):
    pass


class _MissingError(CatalogError):
    pass


class _InvalidOperationError(CatalogError):
    pass


def partition_name(keys: Sequence[str], values: Sequence[str]) -> str:
    """A partition's name in Hive: ``key=value/key=value``, with ``%XX`` for characters that a path cannot have."""

    def escaped(text: str) -> str:
        return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)

    return "/".join(f"{escaped(key.lower())}={escaped(value)}" for key, value in zip(keys, values, strict=True))


def _load() -> Any:
    try:
        import thriftpy2
    except ImportError as e:
        raise missing_package("Hive Metastore", "thriftpy2", e, "hive", DRIVER) from None
    return thriftpy2.load(str(_IDL), module_name="tagstream_hive_metastore_thrift")


def _reason(error: Exception) -> str:
    if isinstance(error, socket.timeout | TimeoutError):
        return "no answer in time"
    return str(getattr(error, "message", None) or error or type(error).__name__).strip().split("\n", 1)[0]


def _entry_of(raw: Any) -> TableEntry:
    sd = raw.sd
    return TableEntry(
        raw.dbName,
        raw.tableName,
        sd.location or "",
        tuple(_columns(sd.cols)),
        tuple(_columns(raw.partitionKeys)),
        sd.inputFormat or "",
        dict((sd.serdeInfo.parameters if sd.serdeInfo else None) or {}),
        dict(raw.parameters or {}),
        sd.outputFormat or "",
        (sd.serdeInfo.serializationLib if sd.serdeInfo else None) or "",
        raw.owner or "",
    )


def _columns(raw: Sequence[Any] | None) -> Iterator[Column]:
    for each in raw or ():
        yield Column(each.name, each.type, each.comment or "")
