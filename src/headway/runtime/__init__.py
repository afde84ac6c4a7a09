"""The runtime of every crawl: an engine built from a job, a clock, and a world that carries out its
commands."""
