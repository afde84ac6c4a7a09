"""From bytes to links, canonical URLs, directives and digests."""
