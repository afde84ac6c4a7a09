"""Keeps the link under its bound: how many bytes each connection may receive, and when."""
