"""Stand-ins for providers that we wrote ourselves, from their documentation, where nobody else's can be had.

They share whatever we misread. What only they have tested is marked so, in the matrix, in the console and in
each provider's file.
"""
