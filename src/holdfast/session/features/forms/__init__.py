"""
Forms: a server needs a person's word before a started call can go on. The call waits as a question,
and goes on with the answer.
"""
