"""Bayesian search over the knobs that the exact search holds fixed, against a simulator or reality.

`knobs` is what may change, `pricing` the analytic answer for one setting, `correction` what
observations say about that answer, `proposals` the sampler made of the two, `study` Optuna's part.
`simulated` searches against the simulator; `loop` against a user's own system, with `job` for one
run of a command, `measured` for what it showed, `ledger` for the trials as the study keeps them.
"""
