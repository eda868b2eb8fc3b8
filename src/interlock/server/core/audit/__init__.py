"""Exports, checkpoints, signatures, and the audit log of the server itself."""
