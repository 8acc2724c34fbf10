"""Read models of the console's pages: what a page shows, in a bounded number of queries, each by an index.

Nothing here writes, and nothing counts over history: counts stop at a cap. Everything is asked for the teams
of the person who looks.
"""
