"""A bare application that sends back what it gets: what HTTP alone costs."""

from __future__ import annotations

import argparse

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route


async def echo(request):
    return Response(await request.body(), media_type="application/json")


async def ready(_):
    return Response("{}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    app = Starlette(
        routes=[
            Route("/v1/targets/{name}/rows", echo, methods=["POST"]),
            Route("/readyz", ready),
        ]
    )
    uvicorn.run(app, port=parser.parse_args().port, log_level="error", access_log=False, http="h11")


if __name__ == "__main__":
    main()
