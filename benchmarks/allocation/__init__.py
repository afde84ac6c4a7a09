"""What allocation costs, and what it gains."""
