"""Kafka consumer keys: those passed to Spark's connector, and messages about the others.

Spark's connector accepts every consumer key with the prefix ``kafka.``. It does not decode values and stores the offsets in
the checkpoint, so a few keys have no effect here and one is refused.
"""

from __future__ import annotations

import re

PREFIX = "kafka."
MASK = "****"

IGNORED = {
    "key.deserializer": "keys are read as bytes",
    "value.deserializer": "values are read as bytes",
    "enable.auto.commit": "the position is stored in the checkpoint",
    "auto.commit.interval.ms": "the position is stored in the checkpoint",
}
REFUSED = {"interceptor.classes": "an interceptor may change or drop records"}

_SECRET = re.compile(
    r"password|passwd|passphrase|\bpwd\b|secret|token|credential|jaas|private|authorization|signature|"
    r"keystore\.key$|key.?file|(access|account|api|encryption|shared|storage).?key|user.?info|auth.?info|"
    r"connection.?str|shared.?access|\bsas\b",
    re.IGNORECASE,
)
# A login in a URL, and secrets in connection strings and signed URLs, under any key.
_LOGIN = re.compile(r"(://[^/@\s:]*:)[^/@\s]+@")
_SECRET_PART = re.compile(
    r"((?:password|pwd|secret|token|account_?key|shared_?access_?key|shared_?access_?signature|sig)\s*=\s*)[^;&,\s]+",
    re.IGNORECASE,
)

KNOWN = frozenset(
    """
allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter bootstrap.servers check.crcs
client.dns.lookup client.id client.rack config.providers connections.max.idle.ms default.api.timeout.ms
enable.auto.commit enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes
group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
isolation.level key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records metadata.max.age.ms
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms partition.assignment.strategy receive.buffer.bytes
reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms retry.backoff.ms
sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism
sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url security.protocol security.providers send.buffer.bytes session.timeout.ms
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.cipher.suites ssl.enabled.protocols
ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
ssl.truststore.location ssl.truststore.password ssl.truststore.type value.deserializer
""".split()
)


def is_secret(name: str) -> bool:
    """True for a key whose value must never be logged (passwords, JAAS configuration, private keys, tokens)."""
    return _SECRET.search(name) is not None


def shown(name: str, value: str) -> str:
    """A value for a log: a secret is masked, and so is a password in a URL or a connection string."""
    if is_secret(name):
        return MASK
    return _SECRET_PART.sub(rf"\1{MASK}", _LOGIN.sub(rf"\1{MASK}@", value))
