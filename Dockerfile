# Two images. Both take dist/aurea, which `make release` builds: one static
# file with everything inside.
#
#   docker build --target aurea -t aurea .
#   docker build --target worker --build-arg BASE=debian:bookworm-slim -t aurea-worker .

# What workers stand on: any Debian or Ubuntu. The programs that it has are
# those that the `host` image gives to sandboxes.
ARG BASE=debian:bookworm-slim

# aurea is for managers and bridges. It has no shell and no other program, runs
# as an unprivileged user, and needs no base.
FROM scratch AS aurea
COPY dist/aurea /aurea
COPY --chown=65532:65532 deploy/empty/ /data/
COPY --chown=65532:65532 deploy/empty/ /keys/
ENV AUREA_DATA=/data HOST=0.0.0.0
USER 65532:65532
EXPOSE 8000 9000
VOLUME /data
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s CMD ["/aurea", "health"]
ENTRYPOINT ["/aurea"]
CMD ["manager"]

# worker makes sandboxes. It runs as root of its container, with the few rights
# that deploy/compose.yaml names.
FROM ${BASE} AS worker
RUN need=""; \
    command -v git >/dev/null || need="$need git"; \
    command -v python3 >/dev/null || need="$need python3"; \
    command -v node >/dev/null || need="$need nodejs"; \
    if [ -n "$need" ]; then \
      apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $need ca-certificates && \
      rm -rf /var/lib/apt/lists/*; \
    fi
COPY dist/aurea /usr/local/bin/aurea
COPY deploy/worker-entrypoint /usr/local/bin/worker-entrypoint
ENV AUREA_DATA=/var/lib/aurea SANDBOX_BASE=/sandbox MANAGER_URL=http://manager:8000
VOLUME /var/lib/aurea /sandbox
ENTRYPOINT ["worker-entrypoint"]
CMD ["aurea", "worker"]
