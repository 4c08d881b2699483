"""What runs inside workers: one text made of these files, which the engine sends to each interpreter that it starts.

`zygote.rs` has their order. They share one namespace and import none of each other, so but for `codec`, which hosts use
too, they mean nothing as modules. They need no more than the standard library of CPython 3.8. `bootstrap.py` is what
`python -c` runs: it takes the text from a descriptor.
"""
