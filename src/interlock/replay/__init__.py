"""Replay recorded runs without executing anything: trace, model replay, dry run, export as a test."""
