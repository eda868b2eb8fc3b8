"""Prove what happened: verify the hash chain, export, sign, and write the schemas of other systems."""
