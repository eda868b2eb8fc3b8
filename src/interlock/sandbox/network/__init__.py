"""The network of commands: a proxy that connects only to hosts that egress rules open."""
