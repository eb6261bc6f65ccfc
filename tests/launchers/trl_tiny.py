"""Makes a tiny random model, prompts and a reward for TRL. Not a test: see test_trl_run.py.

    python trl_tiny.py FOLDER

FOLDER gets model/ (Qwen3 of two layers, random weights, a tokenizer of a few words), data/
(prompts) and tiny_rewards.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

WORDS = ["<pad>", "<eos>", *(f"w{i}" for i in range(126))]
REWARD = '''\
"""Rewards even words, so that the samples of a group differ; notes what each rank was given."""

import atexit
import os

import torch.distributed


@atexit.register
def leave():
    # The script ends without it, and gloo's threads then abort the process.
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def even(completions, **more):
    rank, size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    with open(os.path.join(os.environ["RECORD"], f"rank-{rank}-of-{size}"), "a") as file:
        file.write(f"{len(completions)}\\n")
    return [sum(int(w[1:]) % 2 == 0 for w in text.split()) / 10 for text in completions]
'''


def main() -> None:
    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(WORDS),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        pad_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder / "model")
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    ).save_pretrained(folder / "model")
    (folder / "data").mkdir()
    rows = [{"prompt": " ".join(f"w{(7 * i + j) % 126}" for j in range(4))} for i in range(32)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "data" / "train.jsonl").write_text(text)
    (folder / "tiny_rewards.py").write_text(REWARD)


main()
