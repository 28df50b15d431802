"""Jobs whose store or service may be away: one client, one outbox and one way to wait for all of them."""
