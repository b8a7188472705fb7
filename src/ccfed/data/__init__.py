"""Data sets as arrays, and the ways of dealing them out to clients."""
