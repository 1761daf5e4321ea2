"""The client: it opens producers, consumers and readers, and ends them."""
