#!/usr/bin/env bash
# Makes a virtual environment with verl 0.9.1, TRL 1.16.0, OpenRLHF 0.11.2 and AReaL 1.0.4 on CPU, in
# which the tests marked `launcher` run the launchers' own configuration code over exported plans, Ray
# makes their placement groups and TRL with DeepSpeed trains from them. No GPU code: engines and their
# CUDA packages are left out, and PyTorch's CPU build is taken where the package index has one. Nothing
# is done when the environment is up to date.
#
#   tools/launcher_env.sh [DIR]          default DIR: .launcher-venv
#   RLMPLAN_LAUNCHER_PYTHON=DIR/bin/python pytest -m launcher
set -euo pipefail

dir="${1:-.launcher-venv}"
python="${PYTHON:-python3.11}"
mark="$dir/.installed-$(cksum < "${BASH_SOURCE[0]}" | cut -d' ' -f1)"

if [[ ! -e "$mark" ]]; then
  [[ -x "$dir/bin/python" ]] || "$python" -m venv "$dir"
  pip=("$dir/bin/python" -m pip install --quiet --disable-pip-version-check)
  "${pip[@]}" torch==2.13.0+cpu 2>/dev/null || "${pip[@]}" torch==2.13.0
  # verl, OpenRLHF and AReaL pin what only their GPU engines need, so dependencies are listed here instead.
  "${pip[@]}" --no-deps verl==0.9.1 openrlhf==0.11.2 areal==1.0.4
  "${pip[@]}" 'numpy>=2' hydra-core 'ray>=2.41' 'tensordict>=0.8,<=0.10,!=0.9.0' \
    'transformers>=5.5.3,<5.11,!=5.6.0' codetiming orjson cachetools dill pandas peft accelerate \
    torchdata datasets pillow trl==1.16.0 deepspeed==0.19.8 \
    lark aiohttp colorlog tenacity flask uvloop numba aiofiles openai einops tabulate pynvml \
    swanlab wandb trackio tensorboard tensorboardX
  # DeepSpeed compiles its CPU collectives at first use; a minute that no test should wait for.
  PATH="$(cd -- "$dir/bin" && pwd):$PATH" TORCH_EXTENSIONS_DIR="$(cd -- "$dir" && pwd)/extensions" \
    "$dir/bin/python" -c 'from deepspeed.comm.torch import build_shm_op; build_shm_op()'
  "$dir/bin/python" -c 'import verl, hydra, trl; print("verl", verl.__version__, "TRL", trl.__version__)'
  touch "$mark"
fi
echo "export RLMPLAN_LAUNCHER_PYTHON=$(cd -- "$dir/bin" && pwd)/python"
