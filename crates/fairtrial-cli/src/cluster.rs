//! What commands need to reach a cluster: the server's URL, wherever it stands, and the store.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::OnceLock;

use fairtrial_cluster::{BlobStore, DispatchError, Endpoint, RedisDispatch};
use fairtrial_exec::LocalConfig;

use crate::failure::Failure;

/// The URL itself, or what a file or standard input says it is: there others do not see it.
pub(crate) fn url(option: &str, given: &str) -> Result<String, Failure> {
    let Some(file) = given.strip_prefix('@') else {
        return Ok(given.to_owned());
    };
    let read = match file {
        "-" => first_line(),
        file => std::fs::read_to_string(file),
    };
    let text =
        read.map_err(|error| Failure::usage(option, format!("cannot read `{file}`: {error}")))?;
    Ok(text.trim().to_owned())
}

/// The first line of standard input, however often it is asked for. What follows may be anything.
fn first_line() -> std::io::Result<String> {
    static SAID: OnceLock<String> = OnceLock::new();
    if let Some(line) = SAID.get() {
        return Ok(line.clone());
    }
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(SAID.get_or_init(|| line).clone())
}

/// A server that nothing has been asked of yet.
pub(crate) fn dispatch(option: &str, url: &str) -> Result<RedisDispatch, Failure> {
    let endpoint = Endpoint::parse(url).map_err(|error| Failure::usage(option, error))?;
    RedisDispatch::new(endpoint).map_err(failure)
}

/// What the server, or the way there, stood in the way with, in one line.
pub(crate) fn failure(error: DispatchError) -> Failure {
    let hint = match error {
        DispatchError::Unreachable { .. } => "; does it run there, and is it reached from here?",
        DispatchError::Denied { .. } => "; docs/cluster/users.acl has what users need",
        _ => "",
    };
    Failure::Check(format!("{error}{hint}"))
}

/// The store named, or the one that all of this user's on this machine share.
pub(crate) fn store(
    option: &str,
    given: Option<&str>,
    config: &LocalConfig,
) -> Result<Option<BlobStore>, Failure> {
    match given {
        Some(url) => {
            let env: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
            let store = BlobStore::open(url, &env);
            store
                .map(Some)
                .map_err(|error| Failure::usage(option, error))
        }
        None => Ok(config
            .cache_dir()
            .map(|cache| BlobStore::on_this_host(&cache))),
    }
}
