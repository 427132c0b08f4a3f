"""
The rooms of the facade: one class per subject, with its verbs and their types.

A room holds the runtime and nothing else. It names each verb once; the work is done in the
feature's own folder, which is loaded when a verb is called.
"""
