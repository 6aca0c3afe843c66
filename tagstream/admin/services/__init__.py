"""``tagstream services``: the table services in a process of their own."""
