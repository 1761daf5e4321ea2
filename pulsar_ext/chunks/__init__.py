"""Resolution of any id of a chunked message to the whole message."""
