"""
Bytes that can't be changed unseen: framing, mac chain, segments, anchor, fence, verification. Pure.
"""
