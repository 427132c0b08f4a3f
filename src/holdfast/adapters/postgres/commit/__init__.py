"""The path of one append to the server: requests, the lane that sends them, claims as leases."""
