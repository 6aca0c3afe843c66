"""One clear line for whatever ended the job: our own errors as they are, Spark's with their cause found and explained."""

from __future__ import annotations

import re

from tagstream.streaming.options.options import Options
from tagstream.table.errors import TagstreamError

# The last line of a Python worker's traceback, as Spark passes it on: "tagstream.state.errors.StateError: text".
_OWN = re.compile(r"^tagstream\.[\w.]*errors\.(\w+): (.+)$", re.MULTILINE)
_CAUSE = re.compile(r"^(?:Caused by: )?((?:[a-z]\w*\.)+[A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE)


def explain(error: BaseException, options: Options) -> str:
    """A line that says what happened and what to do next."""
    if isinstance(error, TagstreamError):
        return str(error)
    text = _full_text(error)
    own = _OWN.findall(text)
    if own:
        return str(own[-1][1])
    for pattern, advice in _KNOWN:
        if re.search(pattern, text):
            return advice.format(topic=options.kafka_topic, root=options.dfs_root, checkpoint=options.checkpoint_dir)
    causes = _CAUSE.findall(text)
    last = f"{causes[-1][0]}: {causes[-1][1]}" if causes else text.strip().splitlines()[0]
    return f"Spark failed: {last} (the full text is in the log; nothing of the batch was committed, a restart does it again)"


def own_errors(error: BaseException) -> list[tuple[str, str]]:
    """(class name, text) of the project's own errors that a failure stands for, also of those raised in a task."""
    if isinstance(error, TagstreamError):
        return [(type(error).__name__, str(error))]
    return [(name, text) for name, text in _OWN.findall(_full_text(error))]


_KNOWN = (
    (
        r"UnknownTopicOrPartitionException|This server does not host this topic-partition",
        "Kafka topic {topic} does not exist on this broker; make it, or correct hoodie.streamer.source.kafka.topic",
    ),
    (
        r"SaslAuthenticationException|Authentication failed",
        "the Kafka broker refused the login; check security.protocol, sasl.mechanism and sasl.jaas.config",
    ),
    (
        r"SslAuthenticationException|SSL handshake failed|SSLHandshakeException",
        "no TLS connection to the Kafka broker; check security.protocol and the ssl.* stores and passwords",
    ),
    (
        r"Timed out waiting for a node assignment|TimeoutException.*(describeTopics|listTopics|fetching topic)|"
        r"Failed to (?:create new|construct) Kafka|Timeout of \d+ms expired before (?:the position|.*partition)",
        "the Kafka broker does not answer; check bootstrap.servers, security.protocol and the network",
    ),
    (
        r"Failed to find data source: kafka",
        "Spark's Kafka connector is not on the class path; run through .venv/bin/python, which fetches it, or pass "
        "spark-submit --jars with its four jars (README, Kafka)",
    ),
    (
        r"Some data may have been lost because they are not available in Kafka any more|KAFKA_DATA_LOSS|"
        r"OffsetOutOfRangeException",
        "topic {topic} no longer has offsets the checkpoint needs (expired, or the topic was made anew); restore them, "
        "or accept the loss with hoodie.streamer.source.kafka.enable.failOnDataLoss=false",
    ),
    (
        r"\[PATH_NOT_FOUND\]|Path does not exist",
        "source folder {root} does not exist; correct hoodie.streamer.source.dfs.root",
    ),
    (
        r"Multiple streaming queries are concurrently using",
        "another job uses checkpoint {checkpoint} (end it first), or a file was taken out of its logs by hand without the "
        ".crc file beside it (remove that too)",
    ),
    (
        r"shuffle map stage with indeterminate output",
        "an executor or a part of its local disk was lost while the batch was being written, and Spark can't repeat half a "
        "batch; nothing of the batch was committed, a restart does it again",
    ),
    (
        r"No space left on device",
        "a disk is full (table, checkpoint or spark.local.dir); make room and start again, nothing is lost",
    ),
)


def _full_text(error: BaseException) -> str:
    parts = [str(error)]
    java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    for _ in range(20):
        if java is None:
            break
        try:
            parts.append(str(java.toString()))
            java = java.getCause()
        except Exception:  # the JVM may be gone; what was gathered so far must do
            break
    return "\n".join(parts)
