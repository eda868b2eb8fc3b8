"""Explain decisions, test a policy against recorded runs, and suggest rules."""
