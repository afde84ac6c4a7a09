"""The job file and the options that stand for one, turned into values."""
