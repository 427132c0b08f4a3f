"""Every row of the gateway's table of attacks: refused clearly, nothing run, nothing secret logged."""
