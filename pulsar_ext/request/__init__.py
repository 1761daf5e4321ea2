"""Request and reply over two topics: requesters, repliers, and what their messages say."""
