"""
A chat platform: messages and pressed buttons in, replies and prompts out.

A platform reports facts and never decides. It does not know persons, audiences or boundaries: the
gateway maps the authenticated ids, and the session judges every answer. It acknowledges to its
vendor only after the inbox has returned, since by then the message is durable. It makes one attempt
for each `send`, with the resending of its library switched off, and reports what is certain:
`NotDelivered`, `DeliveryInDoubt`, or a receipt.

An address is the second part of a session's name: `dm-IDENTITY` for a person's direct messages, or
any other text of a-z, 0-9, `.`, `_` and `-` for a thread of a place. The platform makes it from
what arrived (`Arrived.thread`), and finds the thread again by it alone.
"""
