"""Microbenchmarks of a machine (`rlmplan measure`), into a device profile and a kernel table.

`points` says what is measured, `kernels` and `collectives` run it with torch, `timing` takes the
medians, `journal` keeps what is done, `table` and `profile` write the planner's own formats and
`compare` holds a machine against a known profile. Only `machine`, `kernels` and `collectives` touch
torch, and import it when they run.
"""
