"""What must not get into a log, by the name of the key and by what the value holds."""

from __future__ import annotations

import pytest

from tagstream.streaming.options.keys.kafka import MASK, shown


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.key.passphrase",
        "schema.registry.basic.auth.user.info",
        "spark.hadoop.fs.azure.account.key.acct.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.container.acct.blob.core.windows.net",
        "spark.hadoop.fs.azure.sas.fixed.token",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.s3a.server-side-encryption.key",
        "spark.hadoop.google.cloud.auth.service.account.json.keyfile",
        "eventhubs.connectionString",
        "azure.storage.connection-string",
        "confluent.api.key",
        "spark.kubernetes.authenticate.oauthToken",
        "credential.provider",
    ],
)
def test_secrets_by_name(name: str) -> None:
    assert shown(name, "x1") == MASK


@pytest.mark.parametrize(
    "name",
    [
        "security.protocol",
        "sasl.mechanism",
        "ssl.truststore.location",
        "hoodie.datasource.write.recordkey.field",
        "index.key.groups",
        "hoodie.table.keygenerator.class",
        "spark.hadoop.fs.azure.account.auth.type",
        "sasl.oauthbearer.expected.audience",
    ],
)
def test_what_is_no_secret_is_shown(name: str) -> None:
    assert shown(name, "x1") == "x1"


@pytest.mark.parametrize(
    ("value", "logged"),
    [
        ("https://user:hunter2@registry:8081/x", "https://user:****@registry:8081/x"),
        ("Endpoint=sb://n/;SharedAccessKey=abc=;EntityPath=e", "Endpoint=sb://n/;SharedAccessKey=****;EntityPath=e"),
        ("https://a.blob/c?sv=1&sig=abc%3D&se=2", "https://a.blob/c?sv=1&sig=****&se=2"),
        ("jdbc:x://h/db?password=p&user=u", "jdbc:x://h/db?password=****&user=u"),
        ("broker:9092,other:9092", "broker:9092,other:9092"),
        ("s3://bucket/a@b/c", "s3://bucket/a@b/c"),
    ],
)
def test_secrets_in_values(value: str, logged: str) -> None:
    assert shown("some.url", value) == logged
