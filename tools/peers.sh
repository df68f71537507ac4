#!/usr/bin/env bash
# What tests and benchmarks compare us with: the reference toploc, built from source, in build/peers; TRL in
# build/peers-trl, beside our own torch and transformers; torchft in
# build/peers-torchft; schemathesis, which calls the service by its document, in build/peers-schemathesis; Triton, whose
# interpreter and compiler need no GPU, in build/peers-triton.
set -euo pipefail
cd "$(dirname "$0")/.."
pip=(.venv/bin/python -m pip install --quiet --no-deps)
if [ ! -e build/peers/toploc ]; then
  "${pip[@]}" ninja==1.13.2
  "${pip[@]}" --no-build-isolation --no-binary toploc --target build/peers toploc==0.1.6
fi
if [ ! -e build/peers-trl/trl ]; then
  "${pip[@]}" --target build/peers-trl trl==1.16.0 accelerate==1.15.0 datasets==5.2.0 dill==0.4.1 \
    multiprocess==0.70.19 pandas==3.1.1 xxhash==4.1.0
fi
if [ ! -e build/peers-torchft/torchft ]; then
  "${pip[@]}" --target build/peers-torchft torchft==0.2.0 opentelemetry-sdk==1.39.1 opentelemetry-api==1.39.1 \
    opentelemetry-exporter-otlp-proto-http==1.39.1 opentelemetry-exporter-otlp-proto-common==1.39.1 \
    opentelemetry-proto==1.39.1 opentelemetry-semantic-conventions==0.60b1 googleapis-common-protos==1.72.0 \
    protobuf==6.33.2 importlib_metadata==8.7.0 zipp==3.23.0
fi
if [ ! -e build/peers-schemathesis/schemathesis ]; then
  "${pip[@]}" --target build/peers-schemathesis schemathesis==4.32.5 graphql-core==3.3.2 harfile==0.6.0 \
    hypothesis-graphql==0.13.5 jsonschema_rs==0.60.3 pyrate-limiter==4.5.1 werkzeug==3.1.9
fi
if [ ! -e build/peers-triton/triton ]; then
  "${pip[@]}" --target build/peers-triton triton==3.7.1
fi
