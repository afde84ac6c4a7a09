"""The two-level waiting room: sites, and pages of a site; and the set of all pages ever seen."""
