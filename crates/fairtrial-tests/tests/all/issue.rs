//! What the issue says a new user must see.
