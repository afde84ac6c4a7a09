"""What an input costs a parser: time and memory in proportion to its length, whatever it contains."""
