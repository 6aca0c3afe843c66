"""Table services: compaction, clustering, cleaning, archiving, savepoints, restore, upgrade, validation."""
