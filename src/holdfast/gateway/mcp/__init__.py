"""
MCP over HTTP: pins, which are a person's decision, and calls of clients, which never are. A pin
needs an admin's token that may approve; a client's token may do neither.
"""
