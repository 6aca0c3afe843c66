"""One run of the job from its options: checks, session, query, sink, end."""
