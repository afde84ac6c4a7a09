"""The web page of a run, its JSON API and its metrics. Reads the run folder; orders go through it as well."""
