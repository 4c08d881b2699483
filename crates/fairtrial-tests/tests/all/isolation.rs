//! What one call leaves for the next (EX-32 to EX-37).
