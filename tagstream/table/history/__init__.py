"""The archived timeline: files of version 6, and the tree of sorted files from version 8 on."""
