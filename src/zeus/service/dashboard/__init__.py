"""The web page: served by the service, or written as one file."""
