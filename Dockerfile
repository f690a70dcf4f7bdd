# baryflow in a container. docs/howto/deployment.md explains how to run it.
#
#   docker build -t baryflow .
#   docker run --rm baryflow --help

ARG PYTHON=3.12-slim-bookworm

FROM python:${PYTHON} AS build
ARG EXTRAS=serve,client,mqtt,kafka,opcua,parquet
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/baryflow
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN /opt/baryflow/bin/pip install --constraint constraints.txt ".[${EXTRAS}]"

FROM python:${PYTHON}
RUN groupadd --gid 10001 baryflow \
 && useradd --uid 10001 --gid baryflow --home-dir /data --no-create-home --shell /usr/sbin/nologin baryflow \
 && install -d -o baryflow -g baryflow -m 0700 /data
COPY --from=build /opt/baryflow /opt/baryflow
# HEALTH_URL is the address that the health check requests. Change it along with --port and --tls-cert.
ENV PATH=/opt/baryflow/bin:$PATH PYTHONUNBUFFERED=1 HEALTH_URL=http://127.0.0.1:8000/healthz
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(os.environ['HEALTH_URL'], timeout=4)"]
ENTRYPOINT ["baryflow"]
# Loopback only: 'serve' refuses any other --host without a token, and without TLS or --plaintext.
CMD ["serve", "/data/model.bary", "--checkpoint", "/data/checkpoint", "--host", "127.0.0.1", "--port", "8000", "--log-format", "json"]
