"""
Several processes that serve one home behind one port. A worker drives its share of the sessions.
Each fact that two workers need is in a journal; between them pass hints and counts alone.
"""
