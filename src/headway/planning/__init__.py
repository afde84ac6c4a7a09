"""Who gets how much of the link, and when (zhu2020, and headway's own planner)."""
