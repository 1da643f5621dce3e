# The platform with everything locked, for KubeRay (clusters/kuberay.yaml) or any machine with a container engine:
#
#   docker build -t REGISTRY/unlearning:TAG .                          # torch with CUDA, 7 GB
#   docker build -t REGISTRY/unlearning:TAG --build-arg TORCH=cpu .    # without CUDA, 3 GB
#   docker run --rm REGISTRY/unlearning:TAG python -m platform.sweep quickstart --dry-run
#
# NVIDIA's driver is the machine's. Head and workers of a Ray cluster need the same image.

FROM python:3.12-slim-bookworm AS build
ARG TORCH=""
# A compiler for the few packages that come as source. The final image has none.
RUN apt-get update && apt-get install -y --no-install-recommends build-essential && rm -rf /var/lib/apt/lists/*
WORKDIR /tmp/build
COPY pyproject.toml constraints.txt ./
RUN python -I -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir -c constraints.txt uv \
    && /opt/venv/bin/uv pip install --no-cache --compile-bytecode --python /opt/venv/bin/python \
       ${TORCH:+--torch-backend=$TORCH} -c constraints.txt -r pyproject.toml --extra postgresql

FROM python:3.12-slim-bookworm
# git: results name the commit. wget: KubeRay's probes. gcc: Triton compiles what launches its kernels.
RUN apt-get update && apt-get install -y --no-install-recommends gcc git libc6-dev wget && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home unlearning && install --directory --owner 1000 --group 1000 /opt/unlearning
COPY --from=build /opt/venv /opt/venv
# One place on every node, and the working directory: the package is called `platform` (docs/decisions/0001).
WORKDIR /opt/unlearning
COPY --chown=1000:1000 . .
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1
USER 1000
CMD ["python", "-m", "platform.sweep", "--list"]
