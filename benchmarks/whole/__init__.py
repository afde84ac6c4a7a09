"""Every comparison one after the other, and `RESULTS.md`, which says what came of it."""
