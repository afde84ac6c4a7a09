"""Pure decisions: each takes the time and the facts as arguments and returns a value."""
