"""
The everything server of the MCP library, from its own source distribution, as it is: on stdin and
stdout, or on a port of loopback. `python everything_server.py FOLDER stdio`, or a port.

Its own command speaks HTTP alone. The settings of that way are those of its command.
"""

import sys

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    from mcp_everything_server.server import event_store, mcp

    if sys.argv[2] == "stdio":
        mcp.run("stdio")
    else:
        mcp.run(
            "streamable-http", port=int(sys.argv[2]), event_store=event_store, retry_interval=100
        )
