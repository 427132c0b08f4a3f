"""
How a server with an address lets Holdfast in: OAuth 2.1, as the specification of MCP asks for it.

A server names its issuer, so each address here is data: it is https, or on this machine if the
server is, and no redirect is followed. A secret goes to the issuer that settings name, or to the
one that gave it. Nothing here sends a call.
"""
