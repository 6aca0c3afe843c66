"""One run of the job: command line, session, query, restarts, exit."""
