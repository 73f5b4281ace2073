"""`tideline check-store`: whether a store keeps what Tideline needs of it, tried out below a scratch prefix."""
