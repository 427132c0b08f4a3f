"""
Pins of servers' tools. A person decides about each definition; a change withdraws the tool, voids
its prompts and ends its grants, durably and before anything of it runs.
"""
