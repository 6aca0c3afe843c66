"""The archived timeline: log files in timeline layout 1 (version 6), an LSM tree in layout 2 (from version 8 on)."""
