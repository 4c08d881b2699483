"""Constraints of full.yaml that are functions: called with factors and blocks, true if a condition keeps them."""


def fits(factors, blocks):
    return factors["size"] ** 2 < 100_000
