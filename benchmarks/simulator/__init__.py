"""How fast the simulator is as webs grow, and the live frontier with millions of pages."""
