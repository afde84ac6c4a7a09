"""How many pages a second the fetcher brings, beside others."""
