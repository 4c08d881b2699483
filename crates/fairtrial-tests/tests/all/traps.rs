//! Traps of the kernel, each with the rule that avoids it (SB-24, SB-32, SB-37, SB-48 to SB-62).
