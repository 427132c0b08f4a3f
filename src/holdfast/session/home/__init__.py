"""
The home's own events, and the authority that they carry: sessions, seals, keys, grants, tokens.
"""
