"""
This project's own proof: simulations, campaigns, fuzzing, mutation. It imports holdfast and is not
shipped.
"""
