//! `fairtrial status --cluster`: agents, queues and the server (CL-60).

use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use fairtrial_cluster::{
    Dispatch as _, Node, Nodes, QueueName, QueueStatus, RedisDispatch, ServerStatus,
};
use serde_json::{Value as Json, json};

use crate::args::StatusArgs;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::terminal::{Shown, counted};
use crate::{cluster, engine};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// What a server holds.
struct Standing {
    server: ServerStatus,
    nodes: Nodes,
    queues: Vec<(QueueName, u32, QueueStatus)>,
}

/// Shows it, on a terminal again and again.
pub(crate) fn run(url: &str, args: &StatusArgs) -> Result<ExitCode, Failure> {
    cluster::warn_of_password("--cluster", url);
    let url = cluster::url("--cluster", url)?;
    cluster::options("--cluster", &url, &[])?;
    let dispatch = cluster::dispatch("--cluster", &url)?;
    let mut out = io::stdout();
    let is_live = out.is_terminal() && !args.json && !args.once;
    engine::run(async {
        if is_live {
            return watch(&dispatch).await;
        }
        let standing = Standing::ask(&dispatch).await?;
        let shown = match args.json {
            true => writeln!(out, "{}", standing.to_json()),
            false => standing.show(&mut Shown::on(out)),
        };
        unless_gone(shown).map(|()| ExitCode::AllWell)
    })
}

/// On a screen of its own, until Ctrl-C; what was last shown stays.
async fn watch(dispatch: &RedisDispatch) -> Result<ExitCode, Failure> {
    let mut interrupt = Interrupt::listen()?;
    let mut standing = Standing::ask(dispatch).await?;
    let screen = Screen::enter();
    let mut every = tokio::time::interval(EVERY);
    let ended = loop {
        unless_gone(screen.show(&standing))?;
        let next = async {
            every.tick().await;
            Standing::ask(dispatch).await
        };
        match interrupt.or(next).await {
            Ok(Ok(next)) => standing = next,
            Ok(Err(failure)) => break Err(failure),
            Err(_) => break Ok(ExitCode::Interrupted),
        }
    };
    drop(screen);
    unless_gone(standing.show(&mut Shown::on(io::stdout())))?;
    ended
}

/// A terminal's second screen, until it is dropped.
struct Screen;

impl Screen {
    fn enter() -> Self {
        write!(io::stdout(), "\x1b[?1049h").unwrap_or_default(); // who is gone sees nothing anyway
        Self
    }

    fn show(&self, standing: &Standing) -> io::Result<()> {
        let mut out = io::stdout();
        write!(out, "\x1b[H\x1b[2J")?;
        standing.show(&mut Shown::on(io::stdout()))?;
        writeln!(out, "\nCtrl-C ends this")?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = io::stdout();
        write!(out, "\x1b[?1049l")
            .and_then(|()| out.flush())
            .unwrap_or_default(); // as above
    }
}

/// Whoever read it may be gone.
fn unless_gone(shown: io::Result<()>) -> Result<(), Failure> {
    match shown {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::attempting("cannot show the status")(error))
        }
        _ => Ok(()),
    }
}

/// Results recorded in a second, of the last minute; over less than a second none can be told.
fn rate(status: &QueueStatus) -> Option<f64> {
    let (ends, time) = status.lately?;
    (time >= Duration::from_secs(1)).then(|| ends as f64 / time.as_secs_f64())
}

/// With a unit; what is not known has none.
fn shown(number: Option<f64>, unit: &str) -> String {
    number.map_or_else(|| "?".to_owned(), |number| format!("{number:.1} {unit}"))
}

impl Standing {
    async fn ask(dispatch: &RedisDispatch) -> Result<Self, Failure> {
        let asked = async {
            let mut queues = Vec::new();
            for listed in dispatch.queues().await? {
                if let Some(status) = dispatch.queue_status(&listed.queue).await? {
                    queues.push((listed.queue, listed.weight, status));
                }
            }
            Ok(Self {
                server: dispatch.server_status().await?,
                nodes: dispatch.nodes().await?,
                queues,
            })
        };
        asked.await.map_err(cluster::failure)
    }

    /// Live agents, and the seconds since each gave a sign.
    fn live(&self) -> impl Iterator<Item = (&Node, Option<f64>)> {
        let seen = self.nodes.seen_ms.iter().map(|seen_ms| {
            let ago_ms = self.server.time_ms?.saturating_sub((*seen_ms)?);
            Some(ago_ms as f64 / 1000.0)
        });
        self.nodes.live.iter().zip(seen)
    }

    fn to_json(&self) -> Json {
        let agents = self.live().map(|(node, last_sign_s)| {
            let mut agent = node.about.clone();
            agent["last_sign_s"] = last_sign_s.into();
            agent["name"] = node.agent.name().into();
            agent["state"] = json!(node.state);
            agent["classes"] = json!(node.classes);
            agent
        });
        let queues = self.queues.iter().map(|(name, weight, status)| {
            json!({
                "queue": name.as_str(),
                "weight": weight,
                "state": status.state,
                "queued": status.queued,
                "leased": status.leased,
                "parked": status.parked,
                "uncollected": status.uncollected,
                "dead": status.dead,
                "recorded": status.recorded,
                "rate_per_s": rate(status),
                "oldest_wait_s": status.oldest_wait.map(|wait| wait.as_secs_f64()),
                "owner": status.owner.as_ref().map(|(owner, _)| format!("{}:{}", owner.host, owner.pid)),
            })
        });
        json!({
            "server": {
                "name": self.server.name,
                "version": self.server.version,
                "used_memory_bytes": self.server.used_memory,
                "max_memory_bytes": self.server.max_memory,
                "append_only": self.server.append_only,
            },
            "agents": agents.collect::<Vec<_>>(),
            "lost_agents": self.nodes.lost,
            "queues": queues.collect::<Vec<_>>(),
        })
    }

    fn show(&self, out: &mut impl Write) -> io::Result<()> {
        let ServerStatus {
            name,
            version,
            used_memory,
            append_only,
            ..
        } = &self.server;
        let kept = if *append_only {
            "append-only"
        } else {
            "not append-only"
        };
        let memory = used_memory.map_or_else(|| "?".to_owned(), |bytes| (bytes >> 20).to_string());
        writeln!(out, "server   {name} {version}, {memory} MiB, {kept}")?;
        for (node, last_sign_s) in self.live() {
            let about = &node.about;
            let state = json!(node.state);
            writeln!(
                out,
                "agent    {}  {}  {} of {} slots busy, {}, level {}, version {}, last sign {} ago",
                node.agent.name(),
                state.as_str().unwrap_or_default(),
                about["busy"],
                about["slots"],
                node.classes
                    .iter()
                    .map(|class| class.as_str())
                    .collect::<Vec<_>>()
                    .join(" "),
                about["level"].as_str().unwrap_or("?"),
                about["version"].as_str().unwrap_or("?"),
                shown(last_sign_s, "s"),
            )?;
        }
        for name in &self.nodes.lost {
            writeln!(out, "agent    {name}  lost")?;
        }
        let (closed, open): (Vec<_>, Vec<_>) = self
            .queues
            .iter()
            .partition(|(_, _, status)| status.state == "closed" && status.dead == 0);
        for (name, _, status) in open {
            let waits = status.oldest_wait.map(|wait| {
                let wait = shown(Some(wait.as_secs_f64()), "s");
                format!(", the oldest waits for {wait}")
            });
            writeln!(
                out,
                "queue    {}  {}  {} queued, {} leased, {} parked, {} uncollected, {} dead, {} done, {}{}",
                name.as_str(),
                status.state,
                status.queued,
                status.leased,
                status.parked,
                status.uncollected,
                status.dead,
                status.recorded,
                shown(rate(status), "/s"),
                waits.unwrap_or_default(), // nobody does
            )?;
        }
        if !closed.is_empty() {
            let many = counted(closed.len() as u64, "closed queue");
            writeln!(
                out,
                "besides  {many}, kept for seven days (--json has them)"
            )?;
        }
        if self.nodes.live.is_empty() {
            writeln!(
                out,
                "no agent serves; start one with `fairtrial agent --redis URL --slots N`"
            )?;
        }
        Ok(())
    }
}
