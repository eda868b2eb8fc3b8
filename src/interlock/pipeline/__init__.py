"""The way of a tool call: accept, lookup, validate, permit, schedule, execute, normalize, observe, record."""
