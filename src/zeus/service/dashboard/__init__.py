"""The web page: static files, served by the service or written as one file."""
