"""Discrete-event simulation: a plan replayed over sampled response lengths.

`replay.simulate` is the entry; one file each for sampled lengths, the engine (continuous
batching), its prices, the environment pool, training and forward calls, the calls on their meshes,
and the result.
"""
