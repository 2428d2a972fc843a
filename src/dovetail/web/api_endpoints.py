"""The endpoints that a dashboard serves: those of `web/api`, imported when the server starts."""

from __future__ import annotations

from dovetail.web import endpoints


def all_endpoints() -> tuple[endpoints.Endpoint, ...]:
    """Every endpoint."""
    from dovetail.web import api

    return api.ENDPOINTS
