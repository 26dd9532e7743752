# lexicept as a server, on a CPU. Two images:
#   docker build --tag lexicept .                   # words and the packaged model
#   docker build --target torch --tag lexicept .    # any model, by torch
# An index is mounted at /index:
#   docker run --read-only --tmpfs /tmp -v "$PWD/my.index:/index:ro" -p 127.0.0.1:8000:8000 lexicept
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim AS environment
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends binutils \
    && rm -rf /var/lib/apt/lists/* && python -m venv /opt/lexicept
ENV PATH=/opt/lexicept/bin:$PATH
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-compile /wheels/*.whl

# Packages' own tests, pip and symbols that only debuggers read are a fifth of the environment.
# Libraries in *.libs can't be stripped: they were rewritten after linking. hf-xet is for downloads.
FROM environment AS small
RUN find /opt/lexicept -type d -name tests -prune -exec rm -rf {} + \
    && find /opt/lexicept -name '*.so*' -not -path '*.libs/*' -exec strip --strip-unneeded {} + \
    && pip uninstall --yes hf-xet setuptools pip

FROM environment AS environment-torch
# The index of CPU builds: another one brings gigabytes of GPU libraries.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG TORCH=2.13.0
RUN pip install --no-cache-dir --no-compile --index-url "$TORCH_INDEX" "torch==$TORCH" \
    && pip install --no-cache-dir --no-compile "$(ls /wheels/*.whl)[train]"

FROM python:${PYTHON}-slim AS server
RUN useradd --create-home --uid 10001 lexicept
# Compiled kernels are kept where the user may write, or a volume is mounted.
ENV PATH=/opt/lexicept/bin:$PATH \
    HF_HUB_OFFLINE=1 \
    NUMBA_CACHE_DIR=/tmp/numba \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/lexicept
EXPOSE 8000
# A server with a key refuses a request without it by 401, which shows that it runs.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import sys; from http.client import HTTPConnection as To; to = To('127.0.0.1', 8000, timeout=4); to.request('GET', '/health'); sys.exit(to.getresponse().status not in (200, 401))"]
ENTRYPOINT ["lexicept"]
STOPSIGNAL SIGINT

FROM server AS torch
COPY --from=environment-torch /opt/lexicept /opt/lexicept
CMD ["serve", "/index", "--host", "0.0.0.0"]

FROM server AS search
COPY --from=small /opt/lexicept /opt/lexicept
CMD ["serve", "/index", "--host", "0.0.0.0"]
