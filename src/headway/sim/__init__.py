"""Crawls in virtual time of a described web."""
