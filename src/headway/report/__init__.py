"""From rows to tables and figures; pure."""
