"""What the job tells while it runs: live line, log lines, metrics."""
