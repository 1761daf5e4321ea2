"""The version of pulsar_ext, read by the build and by `pulsar_ext.__version__`."""

__version__ = "0.1.0"
