"""The family of indexes behind Hudi's ``hoodie.index.type``; the state index lives in ``state/``."""
