"""Tagstream: a streaming writer for Apache Hudi tables.

The folders beside this one (`state/`, `table/`, ...) are linked here, so that all of it has one import name,
``state``, in a checkout as in an installed wheel. CONTRIBUTING.md says why.
"""

__version__ = "0.1.0"
