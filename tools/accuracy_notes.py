"""What the measured cases say about errors of groups of cases, for the page of accuracy.

Remarks for readers, by the start of a case's id; predictions do not depend on them.
"""

from __future__ import annotations

_NOTES = {
    "trtllm-v1.2-gpt-oss-120b-h100-dep4": (
        "All five rows of the group are 1.5 to 3 times slower than predicted; 97 rows of the same "
        "model on H200 with tensor parallelism agree within about 7 %. Weight-only experts on "
        "Hopper under attention data parallelism run kernels that no table covers."
    ),
    "gpustack-gpt-oss": (
        "Short bursts of chat requests, with weight-only experts on devices without such units: "
        "the kernels of those engines are not in the tables."
    ),
    "gpustack-qwen3-32b": (
        "A short burst of chat requests of unknown lengths: only their mean is published, and the "
        "longest answer ends the measurement."
    ),
    "trtllm-v1.2-llama4-maverick-h200-dep8-fp8-1024-8192": (
        "The same server is off 18 % with 1,024 and 30 % with 32,768 tokens out, and -8 % with "
        "8,192 tokens in: this row stands apart. 188 requests a rank meet 82 slots, so the last "
        "of three waves is short; top-1 routing over 8 ranks is uneven."
    ),
    "mbridge-25.09-pretrain-qwen3-30b-a3b-b200": (
        "Without the host's launch floor (11 s) the prediction is right. Later releases of the "
        "recipe show the floor, this one does not: captured graphs, perhaps; the row does not say."
    ),
    "prime-8xb200-PrimeIntellect-INTELLECT-3": (
        "3.5 times slower than the same run on H200: experts without grouped products on this "
        "device in that release, probably. The offloaded run of the same model is off 18 %."
    ),
    "mbridge-26.04.01-pretrain-deepseek-v3-b200": (
        "Exchange of experts over InfiniBand takes 11 s and must hide almost fully here; in the "
        "other rows of that stack about 60 % of it shows."
    ),
    "mbridge-25.09-pretrain-deepseek-v3-h100": (
        "As on B200: the exchange of experts across nodes hides better than elsewhere."
    ),
    "mbridge-25.11-pretrain-gpt-oss-120b-h100": (
        "Traffic of the expert activation (biases, clamps) and uneven stages are a third of the "
        "step each; the other row of the group is off -7 %."
    ),
    "trtllm-v1.0-qwen3-30b-a3b": (
        "A small model at 600 to 1,600 sequences a step on one device: what the host does for "
        "each sequence is a large part of the step, and it is known roughly only."
    ),
    "trtllm-v1.2-qwen3-235b-a22b-h100-dep8": (
        "Attention data parallelism over 8 devices: all three rows are 30 to 50 % slower; the "
        "same model under tensor parallelism (126 rows) agrees within 8 %."
    ),
    "vtrain-multi-004": (
        "tp 2 and 4 with pp 8 and 16 on 512 devices: times are not monotonic in the microbatch "
        "and all slow; rows with tp 8 of the same model are smooth. Placement or the network."
    ),
    "vtrain-multi-005": (
        "tp 2 and 4 with pp 8 and 16 on 512 devices: times are not monotonic in the microbatch "
        "and all slow; rows with tp 8 of the same model are smooth. Placement or the network."
    ),
    "nemorl-v0": (
        "Steps of Qwen3-235B on GB200 disagree with each other: 64 devices are faster than 128."
    ),
}


def note(case_id: str) -> str:
    """The remark for a case, or nothing."""
    return next((text for start, text in _NOTES.items() if case_id.startswith(start)), "")
