# A broker in a container, without Spark:
#   docker build -t plog .
#   docker run --rm -p 9092:9092 -v plog-data:/data plog
# Other commands: docker run --rm -v plog-data:/data plog verify /data
# Clients on the host reach localhost:9092. Where clients are elsewhere, say what they are to connect to:
#   docker run ... plog serve --listen 0.0.0.0:9092 --advertise HOST:9092
FROM python:3.13-slim AS build
COPY . /src
RUN python -m venv /opt/plog
RUN /opt/plog/bin/pip install --no-cache-dir --disable-pip-version-check --constraint /src/requirements.lock /src

FROM python:3.13-slim
COPY --from=build /opt/plog /opt/plog
RUN useradd --uid 10001 --no-create-home plog && install --directory --owner plog /data
USER plog
ENV PATH="/opt/plog/bin:$PATH" PLOG_DATA_DIR="/data" PYTHONDONTWRITEBYTECODE="1"
VOLUME /data
EXPOSE 9092
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=10s --start-period=30s CMD ["plog", "cluster", "status", "--bootstrap-server", "127.0.0.1:9092"]
ENTRYPOINT ["plog"]
CMD ["serve", "--listen", "0.0.0.0:9092", "--advertise", "localhost:9092"]
