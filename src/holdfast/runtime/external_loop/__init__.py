"""
A turn that an external loop drives. This folder journals and decides its steps; the loop runs the
models and the tools. Nothing here keeps state that the journal does not have.
"""
