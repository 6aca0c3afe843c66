"""The descriptors of Protobuf messages from their Java class, which Spark's driver has in one of the job's jars."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tagstream.streaming.options.options import Options
from tagstream.streaming.options.proto_options import first_schema
from tagstream.streaming.source.decode.plain_json import DELETED
from tagstream.streaming.source.decode.proto_rules import descriptor_set
from tagstream.table.errors import ConfigError


def lacks_descriptors(options: Options) -> bool:
    """Whether the job reads Protobuf, and the type of its messages is a Java class."""
    return options.proto is not None and options.proto.descriptors is None


def with_descriptors(options: Options, spark: SparkSession) -> Options:
    """The options with the type of the messages, and its schema where no other one is given.

    ConfigError where the class is not found, or is not that of a message.
    """
    assert options.proto is not None
    found = replace(options.proto, descriptors=_of_class(spark, options.proto.name))
    schema = first_schema(found, options.source.schema_file, DELETED)
    return replace(options, proto=found, source=replace(options.source, first_schema=schema))


def _of_class(spark: SparkSession, name: str) -> bytes:
    """A FileDescriptorSet with the file of a generated class, and all that it imports."""
    jvm: Any = spark._jvm  # noqa: SLF001 (PySpark has no way to a Java class)
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 (for arrays of Java)
    no_classes, no_values = gateway.new_array(jvm.java.lang.Class, 0), gateway.new_array(jvm.java.lang.Object, 0)
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        descriptor = loader.loadClass(name).getMethod("getDescriptor", no_classes).invoke(None, no_values)
        files: dict[str, bytes] = {}
        _collect(descriptor.getFile(), files)
    except Py4JJavaError as e:
        kind = e.java_exception.getClass().getName()
        why = "no such class" if kind == "java.lang.ClassNotFoundException" else kind
        raise ConfigError(
            f"hoodie.streamer.schemaprovider.proto.class.name={name}: {why}; give the jar with the generated class and "
            "protobuf-java with --jars, or set tagstream.proto.descriptor.file"
        ) from None
    return descriptor_set(list(files.values()))


def _collect(file: Any, files: dict[str, bytes]) -> None:
    if file.getName() in files:
        return
    for other in file.getDependencies():
        _collect(other, files)
    files[file.getName()] = bytes(file.toProto().toByteArray())
