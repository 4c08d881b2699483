//! `fairtrial agent --sweep-blobs`: what nobody needs any more is removed from the store (CL-53).

use std::io::{self, Write};
use std::time::Duration;

use fairtrial_cluster::{BlobStore, RedisDispatch, Swept, named_blobs};

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::terminal::{Shown, counted};
use crate::{cluster, engine};

/// What is younger may belong to a call that is being submitted.
const AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Sweeps once, and says what it did.
pub(super) fn run(dispatch: &RedisDispatch, blobs: Option<&str>) -> Result<ExitCode, Failure> {
    let config = engine::config(None)?;
    let store = cluster::store("--blobs", blobs, &config)?;
    let store = store.ok_or_else(|| Failure::usage("--blobs", "there is no store; name one"))?;
    let swept = engine::run(async {
        dispatch.suited().await.map_err(cluster::failure)?;
        let named = named_blobs(dispatch).await;
        let named = named.map_err(Failure::attempting("nothing was removed"))?;
        let swept = store.sweep(AGE, named).await;
        swept.map_err(Failure::attempting("cannot sweep the store"))
    })?;
    let line = told(&store, swept);
    writeln!(Shown::on(io::stdout()), "{line}").unwrap_or_default(); // whoever read it is gone
    Ok(ExitCode::AllWell)
}

fn told(store: &BlobStore, swept: Swept) -> String {
    let Swept {
        removed,
        named,
        young,
        partial,
    } = swept;
    let blobs = |count: usize| counted(count as u64, "blob");
    format!(
        "{}: {} removed, {} half-written; {} in use, {} younger than a day",
        store.url(),
        blobs(removed),
        counted(partial as u64, "file"),
        blobs(named),
        blobs(young),
    )
}
