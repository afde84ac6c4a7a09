"""The papers' nouns: site, page, task, outcome, event, command. Frozen values, no behaviour to speak of."""
