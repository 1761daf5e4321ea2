"""Replace this module with the official one of the same name."""

from pulsar_ext._native.exports import alias_submodules

alias_submodules("pulsar_ext")
