"""The read model: every number of a run that people and programs see is computed here.

`docs/reference/figures.md` defines the numbers. `link` and `run` compute those of a run, `live` those of an
engine in this process, `reporting` those of a report.
"""
