//! Metrics, identity, seeds (EX-81 to EX-89).
