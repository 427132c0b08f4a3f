"""
The cost of an allowed call under a framework, against the framework alone in the same run. Each
module builds one framework's agent with a scripted model; it runs in the adapter's environment.
"""
