"""Background tasks that outlive the process which started them."""
