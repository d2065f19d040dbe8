# A broker in a container, without Spark:
#   docker build -t plog .
#   docker run --rm -p 127.0.0.1:9092:9092 -v plog-data:/data plog
# Other commands: docker run --rm -v plog-data:/data plog verify /data
# Clients on the host, and on no other, reach localhost:9092. Where clients are elsewhere, say what they are to connect to:
#   docker run ... plog serve --listen 0.0.0.0:9092 --advertise HOST:9092
# Topics, and records of files, that are there when the health check passes:
#   docker run ... -e PLOG_TOPICS="orders:6 audit:1:cleanup.policy=compact" -e PLOG_SEEDS=orders=/seeds/orders.csv -v ./seeds:/seeds:ro plog
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS build
COPY . /src
RUN python -m venv /opt/plog
RUN /opt/plog/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r /src/requirements-image.lock \
    && /opt/plog/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps /src

FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
COPY --from=build /opt/plog /opt/plog
RUN useradd --uid 10001 --no-create-home plog && install --directory --owner plog /data
USER plog
ENV PATH="/opt/plog/bin:$PATH" PLOG_DATA_DIR="/data" PYTHONDONTWRITEBYTECODE="1"
VOLUME /data
EXPOSE 9092
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=10s --start-period=30s CMD ["plog", "topic", "list", "--bootstrap-server", "127.0.0.1:9092"]
ENTRYPOINT ["plog"]
CMD ["serve", "--listen", "0.0.0.0:9092", "--advertise", "localhost:9092"]
