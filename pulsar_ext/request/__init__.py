"""Request and reply over two topics: requesters, repliers, and the properties of their messages."""
