"""
Spans and totals, computed from committed records alone. Pure: nothing here knows a collector, a
clock or a file. The same records give the same spans with the same ids.
"""
