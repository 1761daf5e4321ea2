"""Replaces itself by the official module of this name."""

from pulsar_ext._native.exports import alias_submodules

alias_submodules("pulsar_ext")
