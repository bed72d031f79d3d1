#!/usr/bin/env bash
# Heavy clients from PyPI, unmodified, against `minfer serve`: LiteLLM, instructor, pydantic-ai, openai-agents, GuideLLM and
# lm-evaluation-harness. Not part of scripts/test.sh: their environment, build/clients-env, takes 1.6 GB and some minutes.
#   scripts/check/check_clients.sh [pytest's arguments]     makes it, unless it exists, and runs tests/clients/by_hand
# GuideLLM needs torch, for its data loader alone: Debian's package, unpacked beside the environment but not installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
env=$PWD/build/clients-env
debian=$env/debian
wanted=tests/clients/by_hand/requirements.txt
python=${PYTHON:-python3.11}  # the version that Debian 12's torch is built for

if ! cmp -s "$wanted" "$env/requirements.txt"; then
  rm -rf "$env"
  "$python" -m venv "$env"
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --prefer-binary -r "$wanted"
  mkdir -p "$debian/archives/partial" "$env/torch"
  apt-get -qq -y -o Dir::Cache::archives="$debian/archives" -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1 \
    install --download-only --no-install-recommends python3-torch
  for package in "$debian"/archives/*.deb; do dpkg -x "$package" "$debian"; done
  rm -rf "$debian/archives"
  ln -s "$debian/usr/lib/python3/dist-packages/torch" "$env/torch/torch"
  cp "$wanted" "$env/requirements.txt"
fi

# Nothing is fetched from the network: no models, no prices, no telemetry.
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 HF_HOME="$env/huggingface" LITELLM_LOCAL_MODEL_COST_MAP=True
TORCH_LIBRARIES=$(find "$debian" -name 'lib*.so*' -printf '%h\n' | sort -u | paste -sd:)
export TORCH_LIBRARIES TORCH_FOLDER=$env/torch PATH=$env/bin:$PATH
exec "$env/bin/python" -m pytest -c tests/clients/pytest.ini -v tests/clients/by_hand "$@"
