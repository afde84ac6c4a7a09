"""The crawl as a state machine: events in, commands out, no I/O."""
