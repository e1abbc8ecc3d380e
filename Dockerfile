# Parlour in a container: a user without rights, a root that may be read-only, data in /data.
#
#   docker build -t parlour .
#   docker run -d --name parlour --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges --stop-timeout 40 \
#       -v parlour-data:/data -v ./config.toml:/etc/parlour/config.toml:ro -v ./secrets:/run/secrets:ro \
#       -e PARLOUR_TELEGRAM_TOKEN_FILE=/run/secrets/telegram-token -p 127.0.0.1:8787:8787 parlour
#
# In the config: [http] listen = "0.0.0.0:8787" and hosts = ["127.0.0.1:8787"]. The user is 10001: it must be able to read the config and
# the secrets. `docker kill -s HUP parlour` reloads, `docker exec parlour parlour status` asks.

FROM python:3.11-slim AS build
WORKDIR /opt/parlour
COPY dev pyproject.toml requirements.lock requirements-local.lock ./
RUN python -m venv .venv && .venv/bin/python -m pip install -q --no-deps --require-hashes -r requirements.lock
COPY . .
RUN ./dev venv && .venv/bin/python -m compileall -q gateway channels

FROM python:3.11-slim
ENV PATH=/opt/parlour/.venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONFAULTHANDLER=1 STATE_DIRECTORY=/data HOME=/tmp
COPY --from=build /opt/parlour /opt/parlour
RUN install -d -m 700 -o 10001 -g 10001 /data
USER 10001:10001
VOLUME /data
EXPOSE 8787
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8787/healthz', timeout=4)"]
# The command is a shell's exec: signals reach the daemon.
CMD ["parlour", "run", "--config", "/etc/parlour/config.toml"]
