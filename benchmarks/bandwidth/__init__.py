"""How well the bound holds and is used on the wire: `python -m benchmarks.bandwidth`."""
