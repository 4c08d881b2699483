//! What commands need to reach a cluster: the server's URL, wherever it stands, and the store.

use std::io::{self, Write};
use std::sync::OnceLock;

use fairtrial_cluster::{BlobError, BlobStore, DispatchError, Endpoint, Options, RedisDispatch};
use fairtrial_exec::LocalConfig;

use crate::failure::Failure;
use crate::terminal::Shown;

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
    match text.trim() {
        "" => {
            let problem = format!(
                "`{given}` is empty; it is to hold a URL, {}",
                Endpoint::EXAMPLE
            );
            Err(Failure::usage(option, problem))
        }
        text => Ok(text.to_owned()),
    }
}

/// Says that whoever is on this machine can read a password (CL-44): candidates, too, below `strict`.
pub(crate) fn warn_of_password(option: &str, given: &str) {
    let shown = !given.starts_with('@');
    if shown && Endpoint::parse(given).is_ok_and(|endpoint| endpoint.has_password()) {
        let line = format!(
            "warning: {option}: every process of this machine can read a password on the command line; give the URL \
             by `@FILE` or `@-`"
        );
        writeln!(Shown::on(io::stderr()), "{line}").unwrap_or_default(); // nobody is there to be told
    }
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

/// What a URL says besides where the server is, of which only `taken` means anything here.
pub(crate) fn options(option: &str, url: &str, taken: &[&str]) -> Result<Options, Failure> {
    Options::some_of_url(url, taken).map_err(|error| Failure::usage(option, error))
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
        DispatchError::Denied { hint: "", .. } => "; docs/cluster/users.acl has what users need",
        _ => "",
    };
    Failure::Cluster(format!("{error}{hint}"))
}

/// The store named, or the one that all of this user's on this machine share.
pub(crate) fn store(
    option: &str,
    given: Option<&str>,
    config: &LocalConfig,
) -> Result<Option<BlobStore>, Failure> {
    BlobStore::find(given, config).map_err(|error| Failure::usage(option, error))
}

/// Whether the store named takes and gives (CL-6).
pub(crate) async fn check_store(
    option: &str,
    named: &str,
    config: &LocalConfig,
) -> Result<(), Failure> {
    match store(option, Some(named), config)? {
        Some(store) => store.check().await.map_err(unusable),
        None => Ok(()),
    }
}

/// A store that does not do its work.
pub(crate) fn unusable(error: BlobError) -> Failure {
    Failure::Cluster(error.to_string())
}
