"""How a crawl bears the chaos web: whether good sites notice, whether memory stays flat, what fuzzing finds."""
