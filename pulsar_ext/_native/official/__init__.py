"""Found as modules of `pulsar_ext` itself, which has this folder in its path: the official sub-modules."""
