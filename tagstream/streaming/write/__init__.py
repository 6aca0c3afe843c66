"""The write tasks: located records to data files and write statuses."""
