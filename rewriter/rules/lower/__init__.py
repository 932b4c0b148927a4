"""Rules that lower one op, a file per op."""
