"""What the host allows: programs, control groups, system calls."""
