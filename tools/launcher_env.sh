#!/usr/bin/env bash
# Makes a virtual environment with verl 0.9.1 on CPU, in which tests/launchers/test_verl_real.py runs
# verl's own configuration code over exported plans. About 2 GB, most of it torch.
#
#   tools/launcher_env.sh [DIR]          default DIR: .venv-launchers
#   RLMPLAN_LAUNCHER_PYTHON=DIR/bin/python pytest -m launcher
set -euo pipefail

dir="${1:-.venv-launchers}"
python="${PYTHON:-python3.11}"

[[ -x "$dir/bin/python" ]] || "$python" -m venv "$dir"
pip=("$dir/bin/python" -m pip install --quiet)
# verl pins what only its GPU engines need, so its dependencies are listed here instead.
"${pip[@]}" --no-deps verl==0.9.1
"${pip[@]}" torch==2.13.0 'numpy>=2' hydra-core 'ray>=2.41' \
  'tensordict>=0.8,<=0.10,!=0.9.0' 'transformers>=5.5.3,<5.11,!=5.6.0' codetiming orjson \
  cachetools dill pandas peft accelerate torchdata datasets pillow
"$dir/bin/python" -c 'import verl, hydra; print("verl", verl.__version__)'
echo "export RLMPLAN_LAUNCHER_PYTHON=$(cd -- "$dir/bin" && pwd)/python"
