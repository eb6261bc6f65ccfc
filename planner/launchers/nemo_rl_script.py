"""The launch script of NeMo RL: on a running Ray cluster, or as a Slurm job."""

from __future__ import annotations

import shlex
from string import Template

_SCRIPT = Template(
    """\
#!/usr/bin/env bash
$header\
# Usage:  NEMO_RL_DIR=<checkout> ./launch.sh [key=value ...]          on a Ray cluster or one node
#         SLURM=1 CONTAINER=<image> MOUNTS=<a:b> NEMO_RL_DIR=<checkout> ./launch.sh [...]
# Words after the command override the configuration, as in Hydra; SBATCH_ARGS are given to sbatch.
set -euo pipefail

here="$$(cd -- "$$(dirname -- "$${BASH_SOURCE[0]}")" && pwd)"
nemo_rl="$${NEMO_RL_DIR:?set NEMO_RL_DIR to a checkout of NVIDIA-NeMo/RL}"
config="$$nemo_rl/examples/configs/"$installed
cp -- "$$here/"$config_file "$$config"
cd -- "$$nemo_rl"
command=(uv run $entry --config "$$config" "$$@")

if [[ -z "$${SLURM:-}" ]]; then
  exec "$${command[@]}"
fi
: "$${CONTAINER:?set CONTAINER to the image of NeMo RL}"
# shellcheck disable=SC2086  # SBATCH_ARGS is a list of words
COMMAND="$$(printf '%q ' "$${command[@]}")" \\
CONTAINER="$$CONTAINER" \\
MOUNTS="$${MOUNTS:-$$nemo_rl:$$nemo_rl}" \\
GPUS_PER_NODE=$devices_per_node \\
exec sbatch --nodes=$nodes --job-name=$job_name $${SBATCH_ARGS:-} ray.sub
"""
)


def launch_script(
    header: str,
    *,
    entry: str,
    config_file: str,
    job_name: str,
    nodes: int,
    devices_per_node: int,
) -> str:
    """A bash script; every text of the user's is quoted for the shell."""
    return _SCRIPT.substitute(
        header=header,
        entry=shlex.quote(entry),
        config_file=shlex.quote(config_file),
        installed=shlex.quote(f"rlmplan_{config_file}"),
        job_name=shlex.quote(job_name),
        nodes=nodes,
        devices_per_node=devices_per_node,
    )
