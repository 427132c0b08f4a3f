"""
Index, search and memory of a home in PostgreSQL. Every node shares the rows, and a row counts only
if its mac verifies here.
"""
