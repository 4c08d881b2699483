//! A call as the worker reads it: see `protocol.rs`. Sends nothing.

use std::os::fd::OwnedFd;

use crate::call::{Arguments, Call, InvalidCall, Work};
use crate::dispatch::Site;
use crate::environment::{Changes, is_read_at_startup};
use crate::error::EngineError;
use crate::marshal::Dict;
use crate::protocol::INLINE_BYTES;
use crate::scratch::ScratchDir;
use crate::spill::sealed_argument;
use crate::worker::Mode;

/// A call's frame: the payload, and a descriptor for arguments that are too large for it.
#[derive(Debug)]
pub(crate) struct CallFrame {
    pub(crate) payload: Vec<u8>,
    pub(crate) body: Option<OwnedFd>,
}

/// The frame of a Python call that has `scratch` for its own, if it is to have one.
pub(crate) fn call_frame(
    site: &Site,
    call: &Call,
    worker_id: &str,
    mode: Mode,
    scratch: Option<&ScratchDir>,
) -> Result<CallFrame, EngineError> {
    let terms = call.python().expect("only Python calls have frames");
    let env = environment(site, call, worker_id, scratch);
    let cwd = match (&call.cwd, scratch) {
        (Some(cwd), _) => cwd.clone(),
        (None, Some(scratch)) => scratch.path().to_path_buf(),
        (None, None) => {
            std::env::current_dir().map_err(EngineError::io("asking for the working directory"))?
        }
    };
    let path: Vec<_> = terms
        .python_path
        .iter()
        .map(|entry| entry.to_string_lossy())
        .collect();
    let variables = env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_deref()));
    let header = Dict::new()
        .text("cwd", &cwd.to_string_lossy())
        .options("env", variables)
        .texts("path", path.iter().map(AsRef::as_ref))
        .text("result", &terms.result.to_string())
        .integer("inline", INLINE_BYTES)
        .integer("capture", call.capture_bytes)
        .pairs("rlimits", &rlimits(call))
        .boolean("reuse", mode == Mode::Reuse);
    let (header, body) = match &call.work {
        Work::Source(work) => {
            let header = header
                .text("kind", "source")
                .text("source", &work.source)
                .text("filename", &work.filename)
                .text("function", &work.function);
            (header, &work.arguments)
        }
        Work::Pickled(work) => (header.text("kind", "pickled"), &work.body),
        Work::Command(_) => unreachable!("commands have no frames"),
    };
    with_body(site, call, header, body)
}

/// What the worker itself changes; the rest its interpreter read at its start.
fn environment(site: &Site, call: &Call, worker_id: &str, scratch: Option<&ScratchDir>) -> Changes {
    let mut env = Changes::from([("FAIRTRIAL_WORKER_ID".into(), Some(worker_id.into()))]);
    let host = &site.context.config.host_env;
    let tmpdir = match scratch {
        Some(scratch) => Some(scratch.path().to_string_lossy().into_owned()),
        // A pickled function is the caller's own and finds the caller's.
        None => host
            .get(std::ffi::OsStr::new("TMPDIR"))
            .map(|dir| dir.to_string_lossy().into_owned()),
    };
    if tmpdir.is_some() {
        env.insert("TMPDIR".into(), tmpdir);
    }
    let changed = call
        .env
        .iter()
        .filter(|(name, _)| !is_read_at_startup(name));
    env.extend(changed.map(|(name, value)| (name.clone(), value.clone())));
    env
}

fn with_body(
    site: &Site,
    call: &Call,
    header: Dict,
    body: &Arguments,
) -> Result<CallFrame, EngineError> {
    let (inline, file) = match body {
        Arguments::Bytes(bytes) if bytes.len() as u64 <= INLINE_BYTES => (bytes.as_slice(), None),
        Arguments::Bytes(bytes) => {
            let file = sealed_argument(bytes, &site.spill_policy(call))?;
            (&[][..], Some((file, bytes.len() as u64)))
        }
        Arguments::File { file, size } => {
            let file = file
                .try_clone()
                .map_err(EngineError::io("handing on a large argument"))?;
            (&[][..], Some((file, *size)))
        }
    };
    let (header, file) = match file {
        Some((file, size)) => (header.integer("body_size", size), Some(file)),
        None => (header, None),
    };
    let header = header.finish();
    let length = u32::try_from(header.len())
        .map_err(|_| InvalidCall::new("source", "the call's text is larger than 4 GiB"))?;
    let mut payload = length.to_le_bytes().to_vec();
    payload.extend_from_slice(&header);
    payload.extend_from_slice(inline);
    Ok(CallFrame {
        payload,
        body: file,
    })
}

/// The kernel's own limits for a call.
pub(crate) fn rlimits(call: &Call) -> Vec<(u32, u64)> {
    let limits = &call.limits;
    let cpu_s = limits
        .cpu
        .map(|cpu| cpu.as_secs() + 1 + u64::from(cpu.subsec_nanos() > 0));
    [
        (libc::RLIMIT_NOFILE, limits.open_files),
        (libc::RLIMIT_FSIZE, limits.file_bytes),
        // Behind the launcher's own watch, should that be slow.
        (libc::RLIMIT_CPU, cpu_s),
    ]
    .into_iter()
    .filter_map(|(resource, value)| Some((resource, value?)))
    .collect()
}
