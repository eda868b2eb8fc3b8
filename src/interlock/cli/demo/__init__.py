"""`interlock demo`."""
