"""
Holdfast under the loops of other frameworks: one module per framework, which is imported only when
it is used. These modules use the public library alone.

A framework's own resume value is never consent: only an answer in the journal is.
"""
