"""The HTTP client: connections, TLS, proxy, robots.txt, and the check against private addresses."""
