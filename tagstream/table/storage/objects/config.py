"""Hadoop's settings of a store, and the variables of the environment, as what the client of that store takes.

``options`` are what a storage is sent with to tasks; ``secrets`` are looked up in each process that makes a client, and
go nowhere else. A setting of one bucket (``fs.s3a.bucket.NAME.endpoint``) goes before that of all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from tagstream.table.storage.objects.place import GCS, S3, Place, account_name

Options = tuple[tuple[str, str], ...]

_AWS_HOST = re.compile(r"s3(?:[.-](?P<region>[a-z]{2}-[a-z0-9-]+?))?\.amazonaws\.com(?:\.cn)?$")
_KEY_FILES = ("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile")
_TENANT = re.compile(r"https?://[^/]+/(?P<tenant>[^/]+)/oauth2")
ANONYMOUS, PROFILE = "AnonymousAWSCredentialsProvider", "ProfileCredentialsProvider"


def options_of(place: Place, settings: Mapping[str, str], env: Mapping[str, str]) -> Options:
    """What a client of this bucket needs to know beside its keys, sorted."""
    if place.scheme == S3:
        made = _s3_options(place, settings, env)
    elif place.scheme == GCS:
        made = {"base_url": settings.get("fs.gs.storage.root.url", "").rstrip("/")}
    else:
        endpoint = env.get("AZURE_STORAGE_ENDPOINT") or env.get("AZURE_ENDPOINT") or ""
        made = {"account_name": account_name(place), "endpoint": endpoint.rstrip("/")}
    return tuple(sorted((name, value) for name, value in made.items() if value))


def secrets_of(place: Place, settings: Mapping[str, str]) -> dict[str, str]:
    """The keys that the settings have for this bucket; empty: the environment, a role or a metadata service has them."""
    if place.scheme == S3:
        made = _s3_secrets(place, settings)
    elif place.scheme == GCS:
        made = {"service_account": next((settings[name] for name in _KEY_FILES if settings.get(name)), "")}
    else:
        made = _azure_secrets(place, settings)
    return {name: value for name, value in made.items() if value}


def profile_of(place: Place, settings: Mapping[str, str], env: Mapping[str, str]) -> str | None:
    """The profile of ``~/.aws`` that the keys are in; None when they come from elsewhere."""
    if place.scheme != S3 or _s3_secrets(place, settings)["access_key_id"]:
        return None
    named = env.get("AWS_PROFILE")
    if PROFILE in _s3a(place, settings, "aws.credentials.provider"):
        return named or "default"
    return named if not env.get("AWS_ACCESS_KEY_ID") else None


def _s3a(place: Place, settings: Mapping[str, str], name: str) -> str:
    return settings.get(f"fs.s3a.bucket.{place.bucket}.{name}", settings.get(f"fs.s3a.{name}", "")).strip()


def _s3_options(place: Place, settings: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    named = [env.get(name, "") for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")]
    endpoint = _s3a(place, settings, "endpoint") or next((value for value in named if value), "")
    if endpoint and "://" not in endpoint:
        plain = _s3a(place, settings, "connection.ssl.enabled").lower() == "false"
        endpoint = f"{'http' if plain else 'https'}://{endpoint}"
    region = _s3a(place, settings, "endpoint.region") or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or ""
    amazon = _AWS_HOST.match(urlsplit(endpoint).hostname or "")
    if amazon is not None:  # the client makes the same of the region
        region, endpoint = region or amazon["region"] or "", ""
    path_style = _s3a(place, settings, "path.style.access").lower() == "true"
    hosted = not path_style and "." not in place.bucket and not _is_address(endpoint)
    if endpoint and hosted and _s3a(place, settings, "path.style.access"):
        parts = urlsplit(endpoint)
        endpoint = f"{parts.scheme}://{place.bucket}.{parts.netloc}{parts.path}"
    elif endpoint:
        hosted = False
    return {
        "endpoint": endpoint.rstrip("/"),
        "region": region or "us-east-1",
        "virtual_hosted_style_request": str(hosted).lower(),
        "skip_signature": str(ANONYMOUS in _s3a(place, settings, "aws.credentials.provider")).lower(),
        "server_side_encryption": _encryption(_s3a(place, settings, "encryption.algorithm")),
        "sse_kms_key_id": _s3a(place, settings, "encryption.key")
        if "KMS" in _s3a(place, settings, "encryption.algorithm")
        else "",
        "request_payer": _s3a(place, settings, "requester.pays.enabled").lower().replace("false", ""),
    }


def _encryption(name: str) -> str:
    return {"AES256": "AES256", "SSE-S3": "AES256", "SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse"}.get(name, "")


def _is_address(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    return host == "localhost" or ":" in host or re.fullmatch(r"[\d.]+", host) is not None


def _s3_secrets(place: Place, settings: Mapping[str, str]) -> dict[str, str]:
    names = {"access_key_id": "access.key", "secret_access_key": "secret.key", "session_token": "session.token"}
    return {ours: _s3a(place, settings, theirs) for ours, theirs in names.items()}


def _azure_secrets(place: Place, settings: Mapping[str, str]) -> dict[str, str]:
    def of(name: str) -> str:
        return settings.get(f"fs.azure.{name}.{place.account}", settings.get(f"fs.azure.{name}", ""))

    tenant = _TENANT.match(of("account.oauth2.client.endpoint"))
    return {
        "account_key": of("account.key"),
        "sas_key": of("sas.fixed.token"),
        "client_id": of("account.oauth2.client.id"),
        "client_secret": of("account.oauth2.client.secret"),
        "tenant_id": tenant["tenant"] if tenant else "",
    }
