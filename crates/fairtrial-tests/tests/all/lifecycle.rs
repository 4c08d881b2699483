//! Lifecycle: lazy start, idle end, recycling, shutdown (EX-12 to EX-22).
