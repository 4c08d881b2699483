//! Verdicts, errors, output (EX-70 to EX-80).
