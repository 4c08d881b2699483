//! Work that blocks, done where that harms nobody: the threads of agents and coordinators have leases and owners to keep.

/// On another thread. A panic there is one here.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
