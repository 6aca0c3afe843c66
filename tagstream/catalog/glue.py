"""AWS Glue's Data Catalog by boto3. Its entries are like those of the Hive Metastore, as Hudi's AwsGlueCatalogSyncTool
writes them.

Region, credentials and endpoint are boto3's own: its environment variables, profiles and roles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tagstream.catalog.catalog import CatalogError, Values, pieces
from tagstream.catalog.entry import Column, PartitionEntry, TableEntry
from tagstream.table.errors import DRIVER, missing_package

# Glue's limits of one call (its API reference: BatchCreatePartition, BatchUpdatePartition, BatchDeletePartition,
# BatchGetPartition).
_CREATED, _UPDATED, _DELETED, _READ = 100, 100, 25, 1000
_ATTEMPTS = 8
_MISSING, _EXISTS = "EntityNotFoundException", "AlreadyExistsException"


class GlueCatalog:
    """One account's catalogue.

    ``catalog_id``: of another account; ``skip_archive``: Glue does not keep earlier versions of an altered table.
    ConfigError if the package is missing.
    """

    def __init__(self, *, catalog_id: str | None = None, skip_archive: bool = True) -> None:
        try:
            import boto3
        except ImportError as e:
            raise missing_package("AWS Glue", "boto3", e, "glue", DRIVER) from None
        self._make_client = boto3.client
        self._at = {} if catalog_id is None else {"CatalogId": catalog_id}
        self._skip_archive = skip_archive
        self._client: Any = None

    @property
    def name(self) -> str:
        """The catalogue and its account."""
        return "Glue" + "".join(f" of account {each}" for each in self._at.values())

    def location(self, url: str) -> str:
        """See Catalog. Glue's engines have no ``s3a``."""
        return "s3" + url[3:] if url.startswith("s3a://") else url

    def has_database(self, database: str) -> bool:
        """See Catalog."""
        return self._found("get_database", Name=database) is not None

    def create_database(self, database: str) -> None:
        """See Catalog."""
        made = {"Name": database, "Description": "automatically created by hoodie"}
        self._call("create_database", ok=(_EXISTS,), DatabaseInput=made)

    def table(self, database: str, name: str) -> TableEntry | None:
        """See Catalog."""
        found = self._found("get_table", DatabaseName=database, Name=name.lower())
        return None if found is None else _entry_of(found["Table"])

    def create_table(self, entry: TableEntry) -> None:
        """See Catalog."""
        made = {
            "Name": entry.name.lower(),
            "Owner": entry.owner,
            "TableType": "EXTERNAL_TABLE",
            "Parameters": dict(entry.parameters),
            "PartitionKeys": [_column(key) for key in entry.partition_keys],
            "StorageDescriptor": _descriptor(entry, entry.location),
        }
        self._call("create_table", DatabaseName=entry.database, TableInput=made)

    def alter_table(self, entry: TableEntry, *, cascade: bool) -> None:
        """See Catalog. Partitions get the columns by separate calls: Glue has no CASCADE."""
        found = self._found("get_table", DatabaseName=entry.database, Name=entry.name.lower())
        if found is None:
            raise CatalogError(f"{self.name}: table {entry.full_name} no longer exists; the next sync creates it")
        made = {key: found["Table"][key] for key in _INPUT_FIELDS if key in found["Table"]}
        made |= {
            "Parameters": dict(entry.parameters),
            "StorageDescriptor": {**made.get("StorageDescriptor", {}), **_descriptor(entry, entry.location)},
        }
        self._call("update_table", DatabaseName=entry.database, TableInput=made, SkipArchive=self._skip_archive)
        if cascade:
            there = self.partitions(entry)
            self.update_partitions(entry, [PartitionEntry(values, where) for values, where in there.items()])

    def drop_table(self, database: str, name: str) -> None:
        """See Catalog."""
        self._call("delete_table", ok=(_MISSING,), DatabaseName=database, Name=name.lower())

    def partitions(self, entry: TableEntry, values: Sequence[Values] | None = None) -> Mapping[Values, str]:
        """See Catalog."""
        at: dict[str, Any] = {"DatabaseName": entry.database, "TableName": entry.name.lower()}
        if values is None:
            found = list(self._pages("get_partitions", "Partitions", **at, ExcludeColumnSchema=True))
        else:
            found = []
            for some in pieces(values, _READ):
                wanted = [{"Values": list(each)} for each in some]
                while wanted:
                    answer = self._call("batch_get_partition", **at, PartitionsToGet=wanted)
                    found += answer.get("Partitions", [])
                    wanted = answer.get("UnprocessedKeys", [])
        return {tuple(each["Values"]): each["StorageDescriptor"].get("Location", "") for each in found}

    def add_partitions(self, entry: TableEntry, added: Sequence[PartitionEntry]) -> None:
        """See Catalog."""
        for some in pieces(added, _CREATED):
            made = [_partition(entry, each) for each in some]
            self._batch("batch_create_partition", entry, "Errors", (_EXISTS,), PartitionInputList=made)

    def update_partitions(self, entry: TableEntry, changed: Sequence[PartitionEntry]) -> None:
        """See Catalog."""
        for some in pieces(changed, _UPDATED):
            made = [
                {"PartitionValueList": list(each.values), "PartitionInput": _partition(entry, each)} for each in some
            ]
            self._batch("batch_update_partition", entry, "Errors", (), Entries=made)

    def drop_partitions(self, entry: TableEntry, dropped: Sequence[Values]) -> None:
        """See Catalog."""
        for some in pieces(dropped, _DELETED):
            gone = [{"Values": list(values)} for values in some]
            self._batch("batch_delete_partition", entry, "Errors", (_MISSING,), PartitionsToDelete=gone)

    def close(self) -> None:
        """See Catalog."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connect(self) -> Any:
        if self._client is None:
            from botocore.config import Config

            retries: Any = {"max_attempts": _ATTEMPTS, "mode": "standard"}
            try:
                self._client = self._make_client("glue", config=Config(retries=retries))
            except Exception as e:
                raise CatalogError(f"{self.name}: {e}; set AWS_REGION, or a profile with a region") from e
        return self._client

    def _call(self, method: str, *, ok: tuple[str, ...] = (), **arguments: Any) -> Any:
        """Glue's response; None for one of the error codes ``ok``. boto3 repeats throttled calls."""
        client = self._connect()
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(client, method)(**self._at, **arguments)
        except ClientError as e:
            error = e.response.get("Error", {})
            if error.get("Code") in ok:
                return None
            raise CatalogError(f"{self.name}: {method}: {error.get('Code')}: {error.get('Message')}") from e
        except BotoCoreError as e:
            raise CatalogError(f"{self.name}: {method}: {e}; the next sync tries again") from e

    def _found(self, method: str, **arguments: Any) -> Any:
        return self._call(method, ok=(_MISSING,), **arguments)

    def _pages(self, method: str, key: str, **arguments: Any) -> Iterator[Any]:
        while True:
            answer = self._call(method, **arguments)
            yield from answer.get(key, [])
            if not answer.get("NextToken"):
                return
            arguments["NextToken"] = answer["NextToken"]

    def _batch(self, method: str, entry: TableEntry, key: str, ok: tuple[str, ...], **arguments: Any) -> None:
        answer = self._call(method, DatabaseName=entry.database, TableName=entry.name.lower(), **arguments)
        for each in answer.get(key, []):
            error = each.get("ErrorDetail", {})
            if error.get("ErrorCode") not in ok:
                values = "/".join(each.get("PartitionValues") or each.get("PartitionValueList") or ())
                raise CatalogError(
                    f"{self.name}: {method}: partition {values} of {entry.full_name}: {error.get('ErrorCode')}: "
                    f"{error.get('ErrorMessage')}"
                )


# The fields of a table that TableInput accepts.
_INPUT_FIELDS = (
    "Name", "Description", "Owner", "LastAccessTime", "LastAnalyzedTime", "Retention", "StorageDescriptor",
    "PartitionKeys", "ViewOriginalText", "ViewExpandedText", "TableType", "Parameters", "TargetTable",
)  # fmt: skip


def _column(column: Column) -> dict[str, str]:
    return {"Name": column.name.lower(), "Type": column.type, "Comment": column.comment}


def _descriptor(entry: TableEntry, location: str) -> dict[str, Any]:
    return {
        "Columns": [_column(column) for column in entry.columns],
        "Location": location,
        "InputFormat": entry.input_format,
        "OutputFormat": entry.output_format,
        "SerdeInfo": {"SerializationLibrary": entry.serde, "Parameters": dict(entry.serde_parameters)},
    }


def _partition(entry: TableEntry, partition: PartitionEntry) -> dict[str, Any]:
    return {"Values": list(partition.values), "StorageDescriptor": _descriptor(entry, partition.location)}


def _entry_of(raw: Mapping[str, Any]) -> TableEntry:
    descriptor = raw.get("StorageDescriptor", {})
    serde = descriptor.get("SerdeInfo", {})

    def columns(found: Sequence[Mapping[str, str]]) -> tuple[Column, ...]:
        return tuple(Column(c["Name"], c.get("Type", ""), c.get("Comment", "")) for c in found)

    return TableEntry(
        raw["DatabaseName"],
        raw["Name"],
        descriptor.get("Location", ""),
        columns(descriptor.get("Columns", ())),
        columns(raw.get("PartitionKeys", ())),
        descriptor.get("InputFormat", ""),
        dict(serde.get("Parameters", {})),
        dict(raw.get("Parameters", {})),
        descriptor.get("OutputFormat", ""),
        serde.get("SerializationLibrary", ""),
        raw.get("Owner", ""),
    )
