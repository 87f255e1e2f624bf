"""What the host serves over HTTP."""
