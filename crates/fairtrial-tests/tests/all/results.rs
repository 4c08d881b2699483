//! Results, arguments and spill (EX-54 to EX-69).
