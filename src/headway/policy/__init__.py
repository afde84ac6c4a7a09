"""Pure decisions, one idea a file: time comes in as an argument, a decision comes out as a value."""
