"""The requester's authority, the policy's verdict, and the binding of an approval."""
