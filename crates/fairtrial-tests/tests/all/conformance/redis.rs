//! Two agents of one slot each, which lease calls from a Redis server of the test's own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fairtrial_cluster::{
    BlobStore, Class, ClusterBackend, ClusterConfig, Endpoint, OnFull, QueueName, RedisDispatch,
    nonce,
};
use fairtrial_exec::{SpillDir, SpillPolicy};
use fairtrial_tests::{PATIENCE, RedisServer, Running, Shell};
use rustix::process::Signal;

use super::{Factory, SECRET};

const NODES: [&str; 2] = ["one", "two"];

/// Makes backends of that server.
pub(crate) struct Redis {
    agents: [Running; 2], // dropped before their server
    server: RedisServer,
    shell: Shell,
}

impl Redis {
    /// The server and its agents; none, with a word, where there is no server.
    pub(crate) fn start() -> Option<Self> {
        let server = RedisServer::start()?;
        let shell = Shell::new();
        let mut agents = NODES.map(|name| agent(&shell, &server, name));
        for agent in &mut agents {
            let line = agent.error_line();
            assert!(line.contains("serves"), "{line}");
        }
        Some(Self {
            agents,
            server,
            shell,
        })
    }

    fn backend(&self, url: &str, server_timeout: Duration) -> ClusterBackend<RedisDispatch> {
        let endpoint = Endpoint::parse(url).expect("a URL");
        let dispatch = RedisDispatch::new(endpoint).expect("an address");
        let store = BlobStore::on_this_host(&cache(&self.shell));
        let config = ClusterConfig {
            queue: QueueName::new(format!("conformance-{}", nonce())).expect("a name"),
            named: false,
            class: Class::Cpu,
            weight: 1,
            max_queue: 10_000,
            max_inflight: None,
            on_full: OnFull::Wait,
            server_timeout,
            lease: Duration::from_secs(30),
            packs_cwd: false,
            sends_passed: false,
            spill: SpillPolicy {
                dir: SpillDir::new(self.path().join("spill")),
                memfd_cap_bytes: u64::MAX,
                memory_limit_bytes: None,
            },
            python: None,
        };
        ClusterBackend::new(dispatch, Some(store), config)
    }
}

/// What agents keep, and the store that they share with whoever submits.
fn cache(shell: &Shell) -> PathBuf {
    shell.path().join("cache")
}

fn agent(shell: &Shell, server: &RedisServer, name: &str) -> Running {
    let url = server.url();
    let words = ["agent", "--redis", &url, "--slots", "1", "--name", name];
    // Every so often it looks for what all agents have refused: twice in a lease.
    let terms = ["--sandbox", "none", "--open-server-ok", "--lease", "3s"];
    shell
        .fairtrial(words.into_iter().chain(terms))
        .env("FAIRTRIAL_CACHE_DIR", cache(shell))
        .env(SECRET.0, SECRET.1)
        .start()
}

impl Factory for Redis {
    type Backend = ClusterBackend<RedisDispatch>;

    fn make(&self) -> Self::Backend {
        self.backend(&self.server.url(), PATIENCE)
    }

    fn make_broken(&self) -> Self::Backend {
        let nobody = format!("redis+unix://{}/nobody", self.path().display());
        self.backend(&nobody, Duration::ZERO)
    }

    fn slots(&self) -> usize {
        NODES.len()
    }

    fn nodes(&self) -> Vec<String> {
        NODES.map(str::to_owned).to_vec()
    }

    fn path(&self) -> &Path {
        self.shell.path()
    }

    fn end(self) {
        for agent in &self.agents {
            agent.signal(Signal::TERM);
        }
        for agent in self.agents {
            let ended = agent.end();
            assert_eq!(ended.code, Some(0), "{ended:?}");
        }
        self.shell.assert_nothing_left();
    }
}
