"""The image of broker containers: the official one or, if no registry answers, the small one of `docker/`."""

from __future__ import annotations

import os

import small_image

from pulsar_ext.errors import BrokerStartError
from pulsar_ext.testing.image import choose_image, connect_engine


def usable_image(version: str | None = None) -> str:
    """Return an image that the engine has or can pull, built if necessary."""
    try:
        return choose_image(version=version)
    except BrokerStartError:
        engine = connect_engine()
        try:
            return small_image.build_image(engine, version or small_image.PULSAR_VERSION)
        finally:
            engine.close()


def container_problem() -> str | None:
    """Return why no container can run; None if one can, after setting `PULSAR_EXT_IMAGE` to its image."""
    try:
        os.environ["PULSAR_EXT_IMAGE"] = usable_image()
    except BrokerStartError as error:
        return error.message
    return None
