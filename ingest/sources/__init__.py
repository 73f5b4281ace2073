"""Where records come from: the protocol and its implementations."""
