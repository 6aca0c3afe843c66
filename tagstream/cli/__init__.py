"""The command ``tagstream``: each command's parser, code and help."""
