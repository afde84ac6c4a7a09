"""Many collectors on one crawl: how it grows with them, and what faults cost."""
