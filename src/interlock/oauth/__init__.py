"""Consent of users at OAuth providers, and the tokens that come of it."""
