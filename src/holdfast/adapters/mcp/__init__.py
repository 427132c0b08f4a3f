"""
Tools of MCP servers. Everything that a server sends is data: read strictly, bounded, pinned by a
person, and believed only about the request that it answers.
"""
