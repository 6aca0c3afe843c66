"""Hudi's lock providers: the lock that writers of one table hold while they publish."""
