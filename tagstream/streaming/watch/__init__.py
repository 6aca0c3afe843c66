"""What looks at a run while it goes: its status, the server, and looks at table, index and topic while the job works."""
