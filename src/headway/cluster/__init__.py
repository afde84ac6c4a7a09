"""Several processes or machines on one crawl: leases of sites, shares of the bound, and the calls between."""
