"""The admin command: looks into an index and a table and carries an index over, without Spark."""
