"""
Chat platforms on loopback, for tests: each answers as its vendor documents, and is named with the
source and the date of what it imitates. No message leaves the machine.
"""
