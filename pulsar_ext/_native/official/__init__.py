"""Official submodules, found as submodules of `pulsar_ext` because its path contains this folder."""
