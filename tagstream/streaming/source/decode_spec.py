"""How records are read, as a small value that is sent to every task. The task builds the decoder from it once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.state.layout import OrderingKind, has_bytes
from tagstream.state.ordering import decode_ordering, ordering_kind
from tagstream.state.tag_batch import PartialRows
from tagstream.streaming.options.options import Options
from tagstream.streaming.options.record_options import OPERATION
from tagstream.streaming.record_formats import AVRO_FILES, TYPED_ROWS
from tagstream.streaming.source.decode.confluent_avro import check_reader
from tagstream.streaming.source.decode.debezium import DebeziumRules
from tagstream.streaming.source.decode.key_decoder import KeyDecoder
from tagstream.streaming.source.decode.make_format import PLAIN, FormatRules, TableFacts, make_format
from tagstream.streaming.source.decode.plain_json import with_delete_mark
from tagstream.streaming.source.decode.record_format import NO_FACTS, STRICT, DecodeRules, RecordFormat, avro_facts
from tagstream.streaming.source.decode.record_schemas import SchemaWatch
from tagstream.streaming.source.decode.row_messages import SourceTables
from tagstream.streaming.source.decode.schema_registry import RegistryPlace
from tagstream.streaming.source.source_checks import (
    check_columns,
    check_kinds,
    check_order,
    key_names_its_field,
    longest_key,
    partition_rules,
)
from tagstream.table.fields import ordering_type
from tagstream.table.file_group.ordering_wrapper import beyond
from tagstream.table.keys.keys import KeyGenerator
from tagstream.table.keys.time_partition import TimePartition
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import without_fields
from tagstream.table.read.stored_keys import fitting_generator, names_single_key
from tagstream.table.schema.evolve import EvolutionRules
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.timeline.operation import WriteOperationType


def format_rules(options: Options, *, ordered: bool, pinned: str | None = None) -> FormatRules:
    """How the options ask for records to be read.

    ``ordered``: the table has an ordering field. Without one, only the state index can keep the order of the events;
    with another index they count as they arrive. ``pinned``: the table whose events the stream reads, where the options
    name none.
    """
    record_options = options.records
    arrival = record_options.debezium_order == "arrival" or not (ordered or options.state_index)
    order = "arrival" if arrival else record_options.debezium_order
    avro = record_options.format.avro
    if avro or record_options.format is AVRO_FILES:
        check_reader()
    return FormatRules(
        name=(TYPED_ROWS if options.source.frame_schema is not None else record_options.format).name,
        debezium=DebeziumRules(order=order, truncate=record_options.truncate, placeholder=record_options.placeholder),
        bytes_as=record_options.bytes_as,
        delete_field=record_options.delete_field,
        operation=OPERATION if record_options.dms_deletes else None,
        null_if_lost=record_options.null_if_lost,
        proto=options.proto,
        tables=SourceTables(record_options.tables, None if record_options.tables else pinned),
        registry=RegistryPlace(record_options.registry_url, record_options.registry_ca_file)
        if avro and record_options.registry_url
        else None,
    )


@dataclass(frozen=True)
class DecodeSpec:
    """The table's key rules and the record schema (``avro_json``; ``defaults_json`` may have more Avro defaults).

    ``files``: records are of files or of a Hudi table, not Kafka messages. ``merge_on_read``: deletes are written to log
    files.
    ``refuse_collisions``: composite keys that other values would also make are bad. ``evolution``: how schemas of
    records change the table's; None: they do not. ``partial``: a field that a record lacks keeps the row's value.
    ``longest_key``: the most bytes of a record key that an index outside of the rows can store. ``sql_times``,
    ``consistent_times``: the form of timestamps in partition paths and keys (``KeyGenerator``). ``dropped``: columns of
    records that are not stored. ``deletes_all``: every record deletes its key.
    """

    avro_json: str
    defaults_json: str
    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    key_generator: str
    hive_style: bool
    url_encode: bool
    ordering_fields: tuple[str, ...]
    global_index: bool
    files: bool
    name_single_key: bool
    merge_on_read: bool
    refuse_collisions: bool = False
    rules: DecodeRules = STRICT
    time_fields: tuple[str, ...] = ()
    times: TimePartition | None = None
    format: FormatRules = PLAIN
    evolution: EvolutionRules | None = None
    partial: bool = False
    longest_key: int | None = None
    sql_times: bool = False
    consistent_times: bool = False
    dropped: tuple[str, ...] = ()
    deletes_all: bool = False

    @classmethod
    def for_table(
        cls, table: HoodieTable, avro_json: str, defaults_json: str, options: Options, pinned: str | None = None
    ) -> DecodeSpec:
        """The spec of a table. ConfigError when files have no ordering field, and nothing else orders their records.

        ``pinned``: the table at the source whose events the stream reads (``row_messages.SourceTables``). A complex key
        of one field is ``value`` or ``field:value``, depending on the version that wrote the table. This is read from
        its rows.
        """
        config = table.config
        files = options.source.kind in ("dfs", "hudi")
        reads = format_rules(options, ordered=bool(config.deciding_fields), pinned=pinned)
        check_order(options, config, reads)
        named = key_names_its_field(table, options)
        spec = cls.of(
            table, avro_json, defaults_json, global_index=options.global_index, files=files, name_single_key=named
        )
        check_kinds(options, config)
        check_columns(options, spec.schema)
        # Rules that the table's properties lack may come from the job's options.
        spec = replace(spec, **partition_rules(options, config))
        if options.table.check_stored_keys:
            spec = spec.fitted(table, moves=options.index.moves or not options.global_index)
        return replace(
            spec,
            refuse_collisions=options.table.key_collisions == "quarantine",
            rules=options.decode,
            format=reads,
            partial=options.schema.partial_update,
            longest_key=longest_key(options, config),
            deletes_all=options.table.operation == WriteOperationType.DELETE,
        )

    @classmethod
    def of(
        cls,
        table: HoodieTable,
        avro_json: str,
        defaults_json: str,
        *,
        global_index: bool,
        files: bool,
        name_single_key: bool | None = None,
    ) -> DecodeSpec:
        """The spec by the table's properties. ``name_single_key``: whether a complex key of one field is
        ``field:value``, if the caller has read that from the rows.
        """
        config = table.config
        return cls(
            avro_json=avro_json,
            defaults_json=defaults_json,
            record_key_fields=config.record_key_fields,
            partition_fields=config.partition_fields,
            time_fields=config.time_fields,
            times=config.times,
            key_generator=config.key_generator,
            hive_style=config.hive_style,
            url_encode=config.url_encode,
            ordering_fields=config.deciding_fields,
            global_index=global_index,
            files=files,
            name_single_key=bool(names_single_key(table)) if name_single_key is None else name_single_key,
            merge_on_read=config.is_merge_on_read,
            dropped=config.dropped_fields,
        )

    def fitted(self, table: HoodieTable, *, moves: bool = True) -> DecodeSpec:
        """The same spec with the form of timestamps that the table's rows have in their partition paths.

        ``moves``: a row whose partition field changes moves to its new partition. TableConfigMismatchError where the
        rows have other keys or paths than this spec makes.
        """
        found = fitting_generator(table, self.key_generator_rules, moves=moves)
        return replace(self, sql_times=found.sql_times, consistent_times=found.consistent_timestamps)

    @property
    def schema(self) -> pa.Schema:
        """The user columns of records."""
        return avro_to_arrow(self.avro_json)

    @property
    def field_types(self) -> dict[str, pa.DataType]:
        """The fields that are read of a record, by all of their names, with their types."""
        facts = avro_facts(self.defaults_json)
        columns = with_delete_mark(self.schema)
        names = [(name, f.type) for f in columns for name in (f.name, *facts.get(f.name, NO_FACTS).aliases)]
        return dict(reversed(names))

    @property
    def place_columns(self) -> tuple[str, ...]:
        """The columns that decide on the key and the partition path of a row."""
        return tuple(dict.fromkeys(name.split(".")[0] for name in (*self.record_key_fields, *self.partition_fields)))

    @property
    def stored_json(self) -> str:
        """The Avro schema of stored rows: without the columns that are only in partition paths."""
        return without_fields(self.avro_json, self.dropped)

    @property
    def stored(self) -> pa.Schema:
        """The user columns of stored rows."""
        return avro_to_arrow(self.stored_json)

    @property
    def ordering_type(self) -> pa.DataType | None:
        """Arrow type of the ordering values: a struct for several fields, None without a field."""
        return ordering_type(self.schema, self.ordering_fields)

    @property
    def ordering_kind(self) -> OrderingKind:
        """How ordering values are stored in the index. StateError for a type that can't be ordered.

        A table without an ordering field may have events that are ordered by their format. Then only the state has
        their order.
        """
        if not self.ordering_fields:
            return self.format.ordering_kind
        return ordering_kind(self.ordering_type)

    @property
    def null_if_lost(self) -> bool:
        """Whether a value that was not sent and that no row has any more becomes null."""
        return self.format.null_if_lost

    @property
    def partial_rows(self) -> PartialRows | None:
        """What records that lack fields mean for their rows; None where they have all fields."""
        if not self.partial:
            return None
        schema = self.schema
        needed = np.array([not field.nullable for field in schema], np.bool_)
        place = schema.get_field_index(self.partition_fields[0].split(".")[0]) if self.partition_fields else -1
        return PartialRows(needed, place)

    def of_table(self, table: str) -> DecodeSpec:
        """The same spec for a stream that reads one of the tables that its records name."""
        return replace(self, format=replace(self.format, tables=replace(self.format.tables, pinned=table)))

    @property
    def reads_headers(self) -> bool:
        """Whether the format needs the headers of Kafka messages."""
        return self.format.kind.positions

    @property
    def key_generator_rules(self) -> KeyGenerator:
        """The rules that make record keys and partition paths of rows."""
        return KeyGenerator.create(
            self.key_generator,
            self.record_key_fields,
            self.partition_fields,
            self.hive_style,
            self.url_encode,
            name_single_key=self.name_single_key,
            time_fields=self.time_fields,
            times=self.times,
            sql_times=self.sql_times,
            consistent_timestamps=self.consistent_times,
        )

    @property
    def depth_is_open(self) -> bool:
        """Whether the number of folders of a partition path depends on the values of records."""
        return self.key_generator_rules.depth(self.schema) is None

    def ordering_values(self, codes: pa.Array, natural: pa.Array) -> pa.Array:
        """Encoded ordering values as values of the column's type, for delete blocks; null where ``natural``.

        A value that a delete block cannot store also becomes null. No record has such a value, because the decoder
        rejects it. It is the ordering value of the table's row, which a delete without one gets. So the delete is known
        to be newer than the row.
        """
        known = pc.invert(natural).to_numpy(zero_copy_only=False)
        if (
            self.ordering_type is None
        ):  # no column has the order of the events: a delete applies by its position in the log
            return pa.nulls(len(codes), pa.int64())
        if has_bytes(self.ordering_kind):
            codes_of = np.empty(len(codes), dtype=object)
            codes_of[:] = codes.to_pylist()  # deletes only
        else:
            codes_of = pc.fill_null(codes, 0).to_numpy()
        values = decode_ordering(codes_of, known, self.ordering_type)
        great = beyond(values) if self.merge_on_read else None
        return values if great is None else pc.if_else(pa.array(great), pa.scalar(None, values.type), values)


@lru_cache(maxsize=2)
def cached_decoder(spec: DecodeSpec) -> KeyDecoder:
    """The decoder of a spec. A worker process keeps it from batch to batch."""
    return decoder_of(spec)


def decoder_of(spec: DecodeSpec, record_format: RecordFormat | None = None) -> KeyDecoder:
    """Make a decoder of a spec. ``record_format``: replaces the spec's format."""
    facts, generator = avro_facts(spec.defaults_json), spec.key_generator_rules
    watch = None if spec.evolution is None else SchemaWatch(spec.schema, spec.evolution)
    schema = spec.schema
    if spec.deletes_all:  # a record may have only its key
        schema = pa.schema([field.with_nullable(True) for field in schema])
    table = TableFacts(
        schema=schema,
        avro_json=spec.defaults_json,
        facts=facts,
        generator=generator,
        ordered=bool(spec.ordering_fields),
        global_index=spec.global_index,
        files=spec.files,
        rules=spec.rules,
        watch=watch,
    )
    return KeyDecoder(
        schema,
        generator,
        spec.ordering_fields,
        spec.global_index,
        facts,
        rules=spec.rules,
        merge_on_read=spec.merge_on_read,
        refuse_collisions=spec.refuse_collisions,
        record_format=record_format or make_format(spec.format, table),
        watch=watch,
        partial=spec.partial,
        longest_key=spec.longest_key,
        partition_in_path_alone=bool(spec.dropped),
        operation=spec.format.operation,
        deletes_all=spec.deletes_all,
    )


def source_spec(spec: DecodeSpec, avro_json: str, options: Options) -> DecodeSpec:
    """The spec of records before a transformation, with their schema and format. ``spec``: of the table."""
    before = replace(options, source=replace(options.source, frame_schema=None))
    rules = format_rules(before, ordered=bool(spec.ordering_fields))
    return replace(spec, avro_json=avro_json, defaults_json=avro_json, format=rules)
