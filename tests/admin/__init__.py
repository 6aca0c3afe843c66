"""The admin command on tables of real Hudi and on checkpoints of real streams."""
