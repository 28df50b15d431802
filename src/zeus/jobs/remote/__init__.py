"""Jobs whose store or service may be unreachable: client, outbox, offline cache and retries."""
