"""Jobs whose store or service may be unreachable: outbox, offline cache and retries."""
