//! What calls of this agent could find of its credentials (CL-44). Below `strict` they read files and reach the server:
//! so what they could read is tried, by a call, before the first of them runs.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use fairtrial_cluster::{BlobStore, RedisDispatch};
use fairtrial_exec::{Backend, Call, Level, LocalBackend, Sandbox, Verdict};

use crate::args::AgentArgs;
use crate::cluster;
use crate::failure::Failure;

/// Refuses what calls at this agent's floor could use against it, unless told that they may.
pub(super) async fn check(
    args: &AgentArgs,
    dispatch: &RedisDispatch,
    store: Option<&BlobStore>,
    engine: &LocalBackend,
) -> Result<(), Failure> {
    if args.sandbox >= Level::Strict || args.open_server_ok {
        return Ok(());
    }
    if dispatch.endpoint().names_a_user() && !args.redis.starts_with('@') {
        return Err(misuse(
            "user and password stand on the command line, where every process can read them: give the URL by \
             --redis @-",
        ));
    }
    for file in secret_files(args, dispatch, store) {
        if is_readable(&file, args.sandbox, engine).await? {
            let file = file.display();
            return Err(misuse(&format!(
                "calls could read `{file}`: it is their user's, too. Give the URL by --redis @- from a pipe, keys and \
                 tokens by files of another user"
            )));
        }
    }
    let strangers = dispatch.serves_strangers().await;
    match strangers.map_err(cluster::failure)? {
        true => Err(refusal(
            "Redis has no password and calls can reach it: give it users and passwords",
        )),
        false => Ok(()),
    }
}

fn refusal(problem: &str) -> Failure {
    Failure::Cluster(format!(
        "cannot use the server at this level: {}",
        with_remedies(problem)
    ))
}

/// Who gave the URL can give it otherwise.
fn misuse(problem: &str) -> Failure {
    Failure::usage("--redis", with_remedies(problem))
}

fn with_remedies(problem: &str) -> String {
    format!(
        "{problem}; or say --sandbox strict, where calls reach none of it and have users of their own, or \
         --open-server-ok, if they may"
    )
}

/// Files that hold what opens the server or the store.
fn secret_files(
    args: &AgentArgs,
    dispatch: &RedisDispatch,
    store: Option<&BlobStore>,
) -> Vec<PathBuf> {
    let url = match args.redis.strip_prefix('@') {
        // A file may stand behind it; of a pipe nothing is left.
        Some("-") => fs::read_link("/proc/self/fd/0").ok(),
        file => file.map(PathBuf::from),
    };
    let url = url.filter(|_| dispatch.endpoint().names_a_user());
    let key = dispatch.endpoint().key_file().map(Path::to_owned);
    let token = store.and_then(BlobStore::secret_file);
    let files = [url, key, token].into_iter().flatten();
    files
        .filter_map(|file| fs::canonicalize(file).ok())
        .filter(|file| file.is_file())
        .collect()
}

/// Whether a call can open it. Not computed from modes and groups: a call tries.
async fn is_readable(file: &Path, level: Level, engine: &LocalBackend) -> Result<bool, Failure> {
    let words: [&OsStr; 4] = [
        "sh".as_ref(),
        "-c".as_ref(),
        ": < \"$0\"".as_ref(),
        file.as_ref(),
    ];
    let mut call = Call::command(words);
    call.sandbox = Sandbox::new(level);
    let outcome = engine.execute(call).await?;
    match outcome.verdict {
        Verdict::Ok => Ok(true),
        Verdict::Exit => Ok(false),
        verdict => {
            let problem =
                format!("a call that was to try whether it can read a file ended as `{verdict}`");
            Err(refusal(&problem))
        }
    }
}
