"""The rooms of the tests: `harness` and `adapters` are installed, `support` and `tests` are of the checkout alone.

`harness` is for users' suites too, and documented (docs/conformance.md, docs/store-conformance.md). `adapters` put
torch's classes, our runtime and the simulator behind the harness: `trystate verify` and `trystate replay` run them.
`support` is what the tests share. `tests` has a folder for each part of the source.

Rule: a room imports only from the rooms named before it, and the package never imports `support` or `tests`.
"""
