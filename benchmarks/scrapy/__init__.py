"""Scrapy with the add-on and without: the bound on the wire, deadlines met, and what it costs."""
