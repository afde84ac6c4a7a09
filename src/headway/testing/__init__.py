"""Shipped fakes, the demo web, and conformance checks that a user can run on an own store or policy."""
