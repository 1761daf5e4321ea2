"""The only package that uses the official client's C++ objects, private attributes and threads."""

from .probes import require

require()
