"""The MCP proxy with a real server behind it and real clients in front."""
