"""The command line of the admin command."""
