"""
From an event to the next state: each module moves one part of the state. Nothing here decides.
"""
