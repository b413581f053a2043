"""Local web pages, bound to 127.0.0.1, that call the API only."""
