"""Bytes over the link: HTTP, the pacer that holds the bound, robots.txt, and the guard at the door."""
