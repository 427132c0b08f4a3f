"""
HTTP, live streams and the page: one of the three entrances. Imports the runtime, never an adapter.
"""
