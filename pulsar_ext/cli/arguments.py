"""Arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

__all__ = ["LOCAL_URL", "AdminUrl", "Json", "Token", "Url"]

LOCAL_URL = "pulsar://localhost:6650"

Url = Annotated[str, Parameter(env_var="PULSAR_EXT_URL")]
AdminUrl = Annotated[str | None, Parameter(env_var=("PULSAR_EXT_ADMIN_URL", "PULSAR_ADMIN_URL"))]
Token = Annotated[str | None, Parameter(env_var="PULSAR_EXT_TOKEN", show=False)]
Json = Annotated[bool, Parameter(name="--json", negative="")]
