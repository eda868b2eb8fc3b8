"""Accounts, keys, sign-in, and who may do what."""
