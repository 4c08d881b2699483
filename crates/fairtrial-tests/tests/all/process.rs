//! Process structure: launcher, zygotes, workers (EX-1 to EX-11).
