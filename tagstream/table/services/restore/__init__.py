"""Going back: savepoints, restore to one, rollback of a completed write."""
