"""The values of a crawl: site, page, task, outcome, event, command. They do no I/O and read no clock."""
