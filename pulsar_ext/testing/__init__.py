"""A real Pulsar broker for tests: profiles, back ends, fault injection and the pytest plugin."""
