"""headway beside other crawlers: the same web, one after the other, each on one core."""
