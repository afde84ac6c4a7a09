"""WARC files, their index keys, and append-only files."""
