//! Configuration (EX-94).
