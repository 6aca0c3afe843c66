"""The stateful step: records to located records."""
