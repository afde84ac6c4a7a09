"""What tests, benchmarks and experiments share: fakes, servers, judges, checks for any store or fetcher."""
