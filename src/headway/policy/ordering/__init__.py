"""castillo2004 and cobweb1999: which site, and which page of it, comes next."""
