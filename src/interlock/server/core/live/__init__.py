"""Live events for clients that follow them."""
