# Longhaul on a CPU. Volumes keep what a container makes:
#   docker build -t longhaul .
#   docker run --rm -v data:/longhaul/data -v outputs:/longhaul/outputs -v results:/longhaul/results \
#     longhaul model=lavo task=lra/listops budget=smoke
FROM python:3.11-slim

WORKDIR /longhaul

# torch by itself, so that a change of the code does not fetch it again; constraints.txt pins all versions
COPY constraints.txt ./
# hadolint ignore=DL3013
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt torch

ARG EXTRAS=speech,summarization,mt,fast,loggers,gpu
COPY . .
RUN pip install --no-cache-dir -e ".[${EXTRAS}]" -c constraints.txt \
    && useradd --uid 1000 --create-home longhaul \
    && mkdir -p data outputs \
    && chown -R longhaul data outputs results

USER 1000
ENTRYPOINT ["python", "run.py"]
CMD ["--help"]
