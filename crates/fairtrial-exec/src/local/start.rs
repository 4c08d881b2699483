//! From a call to a process: what the launcher, the zygote and the worker are told.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use tokio::sync::mpsc;

use crate::call::{Call, CommandWork, Work};
use crate::dispatch::{Dispatch, Site, WorkerNumber};
use crate::environment::{Changes, is_read_at_startup};
use crate::error::EngineError;
use crate::marshal::Dict;
use crate::protocol::INLINE_BYTES;
use crate::protocol::launcher::{Program, TaskId, ToLauncher};
use crate::scratch::ScratchDir;
use crate::spill::sealed_argument;
use crate::worker::drive::{CallFrame, Current, ToWorker, Worker};
use crate::worker::link::Link;
use crate::worker::pipes::{Input, Output};
use crate::worker::{Mode, State};

/// Who a new worker is.
pub(crate) struct Identity {
    pub(crate) number: WorkerNumber,
    pub(crate) id: String,
    pub(crate) generation: u32,
}

/// The pool's hold on a worker that was asked for.
pub(crate) struct Asked {
    pub(crate) task: TaskId,
    pub(crate) mailbox: mpsc::UnboundedSender<ToWorker>,
}

/// A call that could not be given to anybody, and why.
pub(crate) struct NotStarted {
    pub(crate) dispatch: Dispatch,
    pub(crate) error: EngineError,
}

/// Has a zygote fork a worker that has its call already.
pub(crate) fn fork(
    site: &Site,
    zygote: TaskId,
    mode: Mode,
    identity: Identity,
    dispatch: Dispatch,
) -> Result<Asked, Box<NotStarted>> {
    let frame = match call_frame(site, &dispatch.call, &identity.id, mode) {
        Ok(frame) => frame,
        Err(error) => return Err(Box::new(NotStarted { dispatch, error })),
    };
    let channels = || -> io::Result<_> {
        let (ours, theirs) = crate::linux::socket::pair_stream()?;
        let (stdout, stdout_theirs) = Output::open(dispatch.call.capture_bytes)?;
        let (stderr, stderr_theirs) = Output::open(dispatch.call.capture_bytes)?;
        Ok((
            Link::new(ours)?,
            stdout,
            stderr,
            vec![theirs, stdout_theirs, stderr_theirs],
        ))
    };
    let (link, stdout, stderr, fds) = match channels() {
        Ok(channels) => channels,
        Err(source) => {
            let error = EngineError::Spawn {
                step: "making its channels".into(),
                source,
            };
            return Err(Box::new(NotStarted { dispatch, error }));
        }
    };
    let (asked, mut worker) = new_worker(site, mode, identity, dispatch, stdout, stderr);
    worker.link = Some(link);
    worker.send_call(frame); // waits in the socket until the worker is there to read it
    site.launcher.send(
        ToLauncher::Fork {
            task: asked.task,
            zygote,
        },
        fds,
    );
    tokio::task::spawn_local(worker.drive());
    Ok(asked)
}

/// Starts a program.
pub(crate) fn command(
    site: &Site,
    identity: Identity,
    mut dispatch: Dispatch,
) -> Result<Asked, Box<NotStarted>> {
    match command_parts(site, &identity, &mut dispatch) {
        Ok(parts) => {
            let (asked, mut worker) = new_worker(
                site,
                Mode::Command,
                identity,
                dispatch,
                parts.stdout,
                parts.stderr,
            );
            worker.stdin = parts.stdin;
            worker.scratch = Some(parts.scratch);
            site.launcher.send(
                ToLauncher::Spawn {
                    task: asked.task,
                    program: parts.program,
                },
                parts.fds,
            );
            tokio::task::spawn_local(worker.drive());
            Ok(asked)
        }
        Err(error) => Err(Box::new(NotStarted { dispatch, error })),
    }
}

struct CommandParts {
    program: Program,
    fds: Vec<OwnedFd>,
    stdin: Option<Input>,
    stdout: Output,
    stderr: Output,
    scratch: ScratchDir,
}

fn command_parts(
    site: &Site,
    identity: &Identity,
    dispatch: &mut Dispatch,
) -> Result<CommandParts, EngineError> {
    let Work::Command(work) = &mut dispatch.call.work else {
        unreachable!("only commands are given here")
    };
    let input = std::mem::take(&mut work.stdin);
    let scratch = make_scratch(site)?;
    let channels = || -> io::Result<_> {
        let (stdin, stdin_theirs) = if input.is_empty() {
            (None, std::fs::File::open("/dev/null")?.into())
        } else {
            let (input, theirs) = Input::open(input)?;
            (Some(input), theirs)
        };
        let (stdout, stdout_theirs) = Output::open(dispatch.call.capture_bytes)?;
        let (stderr, stderr_theirs) = Output::open(dispatch.call.capture_bytes)?;
        Ok((
            stdin,
            stdout,
            stderr,
            vec![stdin_theirs, stdout_theirs, stderr_theirs],
        ))
    };
    let (stdin, stdout, stderr, fds) = channels().map_err(|source| EngineError::Spawn {
        step: "making its channels".into(),
        source,
    })?;
    let Work::Command(work) = &dispatch.call.work else {
        unreachable!("only commands are given here")
    };
    let program = command_program(site, &dispatch.call, work, &identity.id, scratch.path());
    Ok(CommandParts {
        program,
        fds,
        stdin,
        stdout,
        stderr,
        scratch,
    })
}

fn command_program(
    site: &Site,
    call: &Call,
    work: &CommandWork,
    id: &str,
    scratch: &Path,
) -> Program {
    let environment = &site.context.environment;
    let mut changes = Changes::from([
        (
            "TMPDIR".into(),
            Some(scratch.to_string_lossy().into_owned()),
        ),
        ("FAIRTRIAL_WORKER_ID".into(), Some(id.to_owned())),
    ]);
    changes.extend(call.env.clone());
    Program {
        paths: environment.search(&work.argv[0], &changes),
        argv: work
            .argv
            .iter()
            .map(|word| word.as_bytes().to_vec())
            .collect(),
        env: environment.entries(&changes),
        cwd: call
            .cwd
            .as_deref()
            .unwrap_or(scratch)
            .as_os_str()
            .as_encoded_bytes()
            .to_vec(),
        rlimits: rlimits(call),
        zygote: false,
    }
}

fn new_worker(
    site: &Site,
    mode: Mode,
    identity: Identity,
    dispatch: Dispatch,
    stdout: Output,
    stderr: Output,
) -> (Asked, Worker) {
    let (news_sender, news) = mpsc::unbounded_channel();
    let (mailbox_sender, mailbox) = mpsc::unbounded_channel();
    let task = site.launcher.open(news_sender);
    let worker = Worker {
        site: site.clone(),
        number: identity.number,
        id: identity.id,
        mode,
        task,
        news,
        mailbox,
        link: None,
        stdout,
        stderr,
        stdin: None,
        scratch: None,
        state: State::Sent {
            generation: identity.generation,
        },
        current: Some(Current::new(
            dispatch,
            identity.generation,
            site.context.config.ack_timeout,
        )),
        pid: None,
        proc_files: None,
        start_rss_bytes: None,
        stale_frames: 0,
        closed_at: None,
    };
    (
        Asked {
            task,
            mailbox: mailbox_sender,
        },
        worker,
    )
}

/// The call as the worker reads it: see `protocol.rs`.
pub(crate) fn call_frame(
    site: &Site,
    call: &Call,
    worker_id: &str,
    mode: Mode,
) -> Result<CallFrame, EngineError> {
    let terms = call.python().expect("only Python calls have frames");
    let mut env: Changes = [("FAIRTRIAL_WORKER_ID".to_owned(), Some(worker_id.to_owned()))].into();
    let scratch = match call.work {
        Work::Source(_) => Some(make_scratch(site)?),
        _ => None,
    };
    if let Some(scratch) = &scratch {
        env.insert(
            "TMPDIR".into(),
            Some(scratch.path().to_string_lossy().into_owned()),
        );
    }
    env.extend(
        call.env
            .iter()
            .filter(|(name, _)| !is_read_at_startup(name))
            .map(|(n, v)| (n.clone(), v.clone())),
    );
    let cwd = match (&call.cwd, &scratch) {
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
    let header = Dict::new()
        .text("cwd", &cwd.to_string_lossy())
        .options(
            "env",
            env.iter()
                .map(|(name, value)| (name.as_str(), value.as_deref())),
        )
        .texts("path", path.iter().map(AsRef::as_ref))
        .text("result", &terms.result.to_string())
        .integer("inline", INLINE_BYTES)
        .integer("capture", call.capture_bytes)
        .pairs("rlimits", &rlimits(call))
        .boolean("reuse", mode == Mode::Reuse);
    let (header, body) = match &call.work {
        Work::Source(work) => {
            let header = header.text("kind", "source").text("source", &work.source);
            (
                header
                    .text("filename", &work.filename)
                    .text("function", &work.function),
                &work.arguments,
            )
        }
        Work::Pickled(work) => (header.text("kind", "pickled"), &work.body),
        Work::Command(_) => unreachable!("commands have no frames"),
    };
    frame(site, call, header, body, scratch)
}

fn frame(
    site: &Site,
    call: &Call,
    header: Dict,
    body: &[u8],
    scratch: Option<ScratchDir>,
) -> Result<CallFrame, EngineError> {
    let in_file = body.len() as u64 > INLINE_BYTES;
    let (header, file) = if in_file {
        let file = sealed_argument(body, &site.spill_policy(call))?;
        (
            header.integer("body_size", body.len() as u64).finish(),
            Some(file),
        )
    } else {
        (header.finish(), None)
    };
    let length = u32::try_from(header.len()).map_err(|_| {
        crate::call::InvalidCall::new("source", "the call's text is larger than 4 GiB")
    })?;
    let mut payload = length.to_le_bytes().to_vec();
    payload.extend_from_slice(&header);
    if !in_file {
        payload.extend_from_slice(body);
    }
    Ok(CallFrame {
        payload,
        body: file,
        scratch,
    })
}

fn rlimits(call: &Call) -> Vec<(u32, u64)> {
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

fn make_scratch(site: &Site) -> Result<ScratchDir, EngineError> {
    let number = site
        .context
        .next_scratch
        .replace(site.context.next_scratch.get() + 1);
    site.context
        .scratch
        .make(number)
        .map_err(EngineError::io("making a scratch directory"))
}
