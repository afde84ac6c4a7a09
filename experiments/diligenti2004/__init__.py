"""Figures 1 to 3 of diligenti2004, rerun in the network lab and in a simulation."""
