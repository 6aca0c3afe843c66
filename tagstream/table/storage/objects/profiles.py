"""Keys out of a profile of ``~/.aws``: fixed ones are read here, others need AWS's own client."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping

from tagstream.table.errors import ConfigError

_NAMES = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}


def profile_keys(profile: str, env: Mapping[str, str]) -> dict[str, str]:
    """The keys of a profile; ConfigError when there are none, or none that stand there themselves."""
    home = env.get("HOME") or os.path.expanduser("~")
    credentials = env.get("AWS_SHARED_CREDENTIALS_FILE") or f"{home}/.aws/credentials"
    config = env.get("AWS_CONFIG_FILE") or f"{home}/.aws/config"
    for path, section in ((credentials, profile), (config, profile if profile == "default" else f"profile {profile}")):
        found = configparser.RawConfigParser()
        try:
            found.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            raise ConfigError(f"{path} is no file of profiles that can be read") from None  # its lines are keys
        if found.has_option(section, "aws_access_key_id"):
            return {ours: found.get(section, name) for name, ours in _NAMES.items() if found.has_option(section, name)}
    raise ConfigError(
        f"profile {profile} has no keys of its own in {credentials} or {config}; for one that signs in elsewhere (SSO, a "
        f"role) put its keys into the environment: eval $(aws configure export-credentials --profile {profile} --format env)"
    )
