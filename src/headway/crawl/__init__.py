"""The machine: facts in, orders out, no I/O."""
