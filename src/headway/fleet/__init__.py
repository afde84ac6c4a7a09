"""Many collectors on one crawl: who holds which site, who may read how much, what happens when one dies."""
