"""Who gets how much of the link, and when (zhu2020, and headway's own policy).

`problem` holds the question and the answer, `policies` names every way from one to the other, and
`allocator` is what a running crawl asks.
"""
