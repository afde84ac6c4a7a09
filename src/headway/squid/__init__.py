"""The cache parasite of cobweb1999: what the users of a Squid proxy ask for is worth a fresh copy."""
