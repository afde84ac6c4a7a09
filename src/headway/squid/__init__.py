"""Fresh copies of the pages that the users of a Squid proxy request (the "cache parasite" of cobweb1999)."""
