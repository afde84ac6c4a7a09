# docker build -t headway . ; docker run -v "$PWD:/work" headway crawl job.toml -o run/
# The larger image has a compiler, for the C code.
FROM python:3.13 AS build
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev
COPY . /src
RUN pip wheel --no-cache-dir --wheel-dir /wheels '/src[all]'

FROM python:3.13-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels 'headway[all]' && rm -rf /wheels \
    && useradd --create-home crawler && mkdir /work && chown crawler /work
USER crawler
WORKDIR /work
# The first signal lets requests under way end, and saves.
STOPSIGNAL SIGINT
ENTRYPOINT ["headway"]
CMD ["--help"]
