"""The web page of a run, its JSON API and its metrics. Orders are written into the run folder."""
