"""Everything that outlives the process: the run folder with its SQLite file, and the schema on PostgreSQL."""
