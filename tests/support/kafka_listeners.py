"""The listeners a test broker offers, and what a client must say to each: Java's keys and kafka-python's arguments."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

USER = "alice"
PASSWORD = "alice-secret"
STORE_PASSWORD = "store-secret"
LISTENERS = ("plain", "sasl_plain", "sasl_scram", "tls", "sasl_tls")


@dataclass(frozen=True)
class Stores:
    """Key material of the broker: a PKCS12 key store, the trust store for Java clients, the PEM for Python ones."""

    key_store: Path
    trust_store: Path
    certificate: Path


@dataclass(frozen=True)
class Listener:
    """One way in: its name here, its port on loopback, its security protocol and SASL mechanism."""

    kind: str
    port: int

    @property
    def name(self) -> str:
        """Name in the broker's settings."""
        return self.kind.upper().replace("_", "")

    @property
    def protocol(self) -> str:
        """Kafka's security.protocol."""
        protocols = {"plain": "PLAINTEXT", "tls": "SSL", "sasl_tls": "SASL_SSL"}
        return protocols.get(self.kind, "SASL_PLAINTEXT")

    @property
    def mechanism(self) -> str | None:
        """SASL mechanism, None without SASL."""
        mechanisms = {"sasl_plain": "PLAIN", "sasl_scram": "SCRAM-SHA-256", "sasl_tls": "PLAIN"}
        return mechanisms.get(self.kind)

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    def broker_settings(self) -> dict[str, str]:
        """Settings of server.properties that only this listener has."""
        if self.mechanism is None:
            return {}
        prefix = f"listener.name.{self.name.lower()}"
        users = (
            f' username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}"' if self.mechanism == "PLAIN" else ""
        )
        return {
            f"{prefix}.sasl.enabled.mechanisms": self.mechanism,
            f"{prefix}.{self.mechanism.lower()}.sasl.jaas.config": f"{_login_module(self.mechanism)} required{users};",
        }

    def java_client(self, stores: Stores | None) -> dict[str, str]:
        """Consumer keys of the Java client, as a properties file of the job carries them."""
        keys = {"bootstrap.servers": self.address}
        if self.protocol != "PLAINTEXT":
            keys["security.protocol"] = self.protocol
        if self.mechanism is not None:
            keys["sasl.mechanism"] = self.mechanism
            module = _login_module(self.mechanism)
            keys["sasl.jaas.config"] = f'{module} required username="{USER}" password="{PASSWORD}";'
        if stores is not None and self.protocol.endswith("SSL"):
            keys["ssl.truststore.location"] = str(stores.trust_store)
            keys["ssl.truststore.password"] = STORE_PASSWORD
            keys["ssl.truststore.type"] = "PKCS12"
        return keys

    def python_client(self, stores: Stores | None) -> dict[str, str]:
        """Arguments for kafka-python's clients."""
        arguments = {"bootstrap_servers": self.address, "security_protocol": self.protocol}
        if self.mechanism is not None:
            arguments |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": USER,
                "sasl_plain_password": PASSWORD,
            }
        if stores is not None and self.protocol.endswith("SSL"):
            arguments["ssl_cafile"] = str(stores.certificate)
        return arguments


def make_stores(folder: Path) -> Stores:
    """A self-signed certificate for 127.0.0.1 by Java's keytool, in the three forms clients and broker want."""
    stores = Stores(folder / "broker.p12", folder / "trust.p12", folder / "broker.pem")
    if stores.certificate.exists():
        return stores
    password = ["-storetype", "PKCS12", "-storepass", STORE_PASSWORD, "-alias", "broker"]
    _keytool(
        ["-genkeypair", "-keystore", str(stores.key_store), *password, "-keyalg", "EC", "-groupname", "secp256r1"]
        + ["-dname", "CN=127.0.0.1", "-ext", "SAN=ip:127.0.0.1,dns:localhost", "-validity", "30"]
    )
    _keytool(["-exportcert", "-rfc", "-keystore", str(stores.key_store), *password, "-file", str(stores.certificate)])
    _keytool(
        ["-importcert", "-noprompt", "-keystore", str(stores.trust_store), *password, "-file", str(stores.certificate)]
    )
    return stores


def _login_module(mechanism: str) -> str:
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    return f"org.apache.kafka.common.security.{kind}LoginModule"


def _keytool(arguments: list[str]) -> None:
    done = subprocess.run(["keytool", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"keytool {arguments[0]} failed: {done.stdout}{done.stderr}")
