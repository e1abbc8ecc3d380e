"""The web page: one chat a browser, served by the daemon's own HTTP server."""
