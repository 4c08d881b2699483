//! Deadlines, kill, cancel (EX-45 to EX-53).
