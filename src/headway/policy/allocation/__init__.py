"""zhu2020: which site gets how much of the link, so that all deadlines hold."""
