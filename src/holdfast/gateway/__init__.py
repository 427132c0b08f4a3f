"""
HTTP, live streams and the page: one of the three ways in. Imports the runtime, never an adapter.
"""
