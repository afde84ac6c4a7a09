"""The parts put together: what the command line and the library both call."""
