"""cobweb1999: collectors and latency (fig 3, table 1), cache parasite (table 3), sums (tables 2, 4 to 6)."""
