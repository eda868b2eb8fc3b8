"""Test agents and tools: fakes, fixtures for pytest, and conformance suites for your own parts."""
