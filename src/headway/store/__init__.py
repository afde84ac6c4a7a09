"""What outlives the process: SQLite, WARC files and their index."""
