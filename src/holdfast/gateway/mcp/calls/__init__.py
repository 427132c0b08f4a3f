"""
The calls of clients, each as a turn of its own: the desk that works on them, one call in flight,
its way through its turn, and its outcome for a client that asks later.
"""
