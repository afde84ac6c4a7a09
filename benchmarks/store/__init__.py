"""What keeping a page costs: the archive's records and the store's commits, side by side with others."""
