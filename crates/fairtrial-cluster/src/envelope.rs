//! What travels: calls to agents, results back. Pure; nothing here is sent, stored or unpickled.
//!
//! Both are JSON objects, so that a field which an older side does not know is ignored (CL-40) and people can read what
//! is in the server. Bytes are base64; what does not fit is a blob, named by its digest and size.

mod base64;
mod call;
mod carried;
mod outcome;
mod result;
mod sandbox;
mod task;
#[cfg(test)]
mod tests;

pub use base64::Base64;
pub use carried::{Carried, Outgoing, OutgoingBody};
pub(crate) use outcome::shortened;
pub use outcome::{OutcomeRecord, known};
pub use result::{ErrorCode, ResultEnvelope, Sealed, TaskError, Told};
pub use task::{BlobUse, Needs, PROTOCOL, PackedParts, SealedTask, TaskEnvelope, UnreadableTask};

/// Whether a field is left out: whoever reads has the same by itself. Most fields of most envelopes are.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
