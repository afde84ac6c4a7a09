"""zhu2020's figures 2 to 12 on its own numbers, a verdict on each claim, and headway drawn beside it."""
