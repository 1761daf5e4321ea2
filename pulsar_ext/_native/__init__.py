"""The only door to the official client: its C++ objects, private attributes and threads."""

from .probes import require

require()
