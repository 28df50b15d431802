"""What tests share: places, servers, drivers and stories."""
