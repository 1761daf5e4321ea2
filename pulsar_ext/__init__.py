"""The drop-in for the official Apache Pulsar client: `import pulsar_ext as pulsar`."""

from ._version import __version__ as __version__
