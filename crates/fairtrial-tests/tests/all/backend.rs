//! The conformance suite every Backend passes (EX-90 to EX-93).
