#!/usr/bin/env bash
# Plan 1 for grpo-Qwen/Qwen2.5-7B: disaggregated: engine 3 | actor 4, 1-off async
# Predicted step time 24.0 s on 7 devices
# Written for nemo-rl (NeMo RL commit 7ea279abf)
# Usage:  NEMO_RL_DIR=<checkout> ./launch.sh [key=value ...]          on a Ray cluster or one node
#         SLURM=1 CONTAINER=<image> MOUNTS=<a:b> NEMO_RL_DIR=<checkout> ./launch.sh [...]
# Words after the command override the configuration, as in Hydra; SBATCH_ARGS are given to sbatch.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
nemo_rl="${NEMO_RL_DIR:?set NEMO_RL_DIR to a checkout of NVIDIA-NeMo/RL}"
config="$nemo_rl/examples/configs/"rlmplan_nemo_rl.yaml
cp -- "$here/"nemo_rl.yaml "$config"
cd -- "$nemo_rl"
command=(uv run examples/run_grpo.py --config "$config" "$@")

if [[ -z "${SLURM:-}" ]]; then
  exec "${command[@]}"
fi
: "${CONTAINER:?set CONTAINER to the image of NeMo RL}"
# shellcheck disable=SC2086  # SBATCH_ARGS is a list of words
COMMAND="$(printf '%q ' "${command[@]}")" \
CONTAINER="$CONTAINER" \
MOUNTS="${MOUNTS:-$nemo_rl:$nemo_rl}" \
GPUS_PER_NODE=7 \
exec sbatch --nodes=1 --job-name=grpo-Qwen/Qwen2.5-7B ${SBATCH_ARGS:-} ray.sub
