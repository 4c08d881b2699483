//! What a backend's URL says besides where the server is (CL-55): `redis://host:6379/0?queue=q&max_queue=100`.

use std::time::Duration;

use fairtrial_exec::SpillPolicy;
use url::Url;

use crate::backend::{ClusterConfig, OnFull};
use crate::jitter::nonce;
use crate::names::{BadName, Class, QueueName};

/// What users can set, each with its default.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The queue's name; drawn if there is none.
    pub queue: Option<QueueName>,
    /// The slots that calls need.
    pub class: Class,
    /// The queue's share.
    pub weight: u32,
    /// Tasks and uncollected results, at most.
    pub max_queue: u64,
    /// Calls that run at a time, at most.
    pub max_inflight: Option<u64>,
    /// Where what is large is kept.
    pub blobs: Option<String>,
    /// What happens when the queue is full.
    pub on_full: OnFull,
    /// How long the server may be away.
    pub server_timeout: Duration,
    /// A lease that is not renewed so long is lost.
    pub lease: Duration,
    /// Whether the directories that calls run in are packed and sent along; else they are looked for on the node (CL-42).
    pub packs_cwd: bool,
    /// Whether the values of passed variables go with the calls, through the server; else agents have their own.
    pub sends_passed: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            queue: None,
            class: Class::Cpu,
            weight: 1,
            max_queue: 10_000,
            max_inflight: None,
            blobs: None,
            on_full: OnFull::Wait,
            server_timeout: Duration::from_secs(600),
            lease: Duration::from_secs(30),
            packs_cwd: false,
            sends_passed: false,
        }
    }
}

/// No lease is shorter.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// An option that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}`: {problem}")]
pub struct BadOption {
    /// Its name.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
}

/// The keys that the connection itself takes.
const CONNECTION: [&str; 8] = [
    "ca", "cert", "key", "insecure", "db", "user", "pass", "protocol",
];
/// Ours.
const KEYS: [&str; 11] = [
    "queue",
    "cls",
    "weight",
    "max_queue",
    "max_inflight",
    "blobs",
    "on_full",
    "server_timeout",
    "lease",
    "cwd",
    "pass_env",
];

impl Options {
    /// Those of a URL's query; the rest of it is not looked at.
    pub fn from_url(url: &str) -> Result<Self, BadOption> {
        Self::some_of_url(url, &KEYS)
    }

    /// As [`Options::from_url`], where only those `taken` mean anything: others are refused, for they would do nothing.
    pub fn some_of_url(url: &str, taken: &[&str]) -> Result<Self, BadOption> {
        let mut options = Self::default();
        let Ok(url) = Url::parse(url) else {
            return Ok(options); // whoever connects says so
        };
        for (key, value) in url.query_pairs() {
            if CONNECTION.contains(&&*key) {
                continue;
            }
            let known = KEYS.contains(&&*key);
            if known && !taken.contains(&&*key) {
                let problem = "does nothing here; it is for `--backend`".to_owned();
                let key = key.into_owned();
                return Err(BadOption { key, problem });
            }
            options.set(&key, &value)?;
        }
        Ok(options)
    }

    /// Sets one by its name.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), BadOption> {
        let bad = |problem: String| BadOption {
            key: key.to_owned(),
            problem,
        };
        let number = || {
            let number = value.parse::<u64>().ok().filter(|number| *number > 0);
            number.ok_or_else(|| bad(format!("`{value}` is no number above 0")))
        };
        let time = || fairtrial_exec::parse_duration(value).map_err(&bad);
        match key {
            "queue" => {
                let name = QueueName::new(value).map_err(|error| bad(error.to_string()))?;
                self.queue = Some(name);
            }
            "cls" => {
                self.class = value
                    .parse()
                    .map_err(|error: BadName| bad(error.to_string()))?;
            }
            "weight" => {
                let weight = u32::try_from(number()?);
                self.weight = weight.map_err(|_| bad(format!("`{value}` is too large")))?;
            }
            "max_queue" => self.max_queue = number()?,
            "max_inflight" => self.max_inflight = Some(number()?),
            "blobs" => self.blobs = Some(value.to_owned()),
            "on_full" => {
                self.on_full = match value {
                    "wait" => OnFull::Wait,
                    "error" => OnFull::Error,
                    _ => return Err(bad(format!("`{value}` is neither `wait` nor `error`"))),
                }
            }
            "server_timeout" => self.server_timeout = time()?,
            // What is shorter could not be renewed in time on any machine.
            "lease" => self.lease = time()?.max(SHORTEST_LEASE),
            "cwd" => {
                self.packs_cwd = match value {
                    "packed" => true,
                    "there" => false,
                    _ => return Err(bad(format!("`{value}` is neither `packed` nor `there`"))),
                }
            }
            "pass_env" => {
                self.sends_passed = match value {
                    "send" => true,
                    "agent" => false,
                    _ => return Err(bad(format!("`{value}` is neither `send` nor `agent`"))),
                }
            }
            _ => return Err(bad(format!("is no option; there are {}", KEYS.join(", ")))),
        }
        Ok(())
    }

    /// A backend set up so. A queue without a name gets one: `kind`, and something drawn.
    ///
    /// # Errors
    /// `kind` cannot begin a name.
    pub fn config(self, kind: &str, spill: SpillPolicy) -> Result<ClusterConfig, BadName> {
        let named = self.queue.is_some();
        let queue = match self.queue {
            Some(queue) => queue,
            None => QueueName::new(format!("{kind}-{}", nonce()))?,
        };
        Ok(ClusterConfig {
            queue,
            named,
            class: self.class,
            weight: self.weight,
            max_queue: self.max_queue,
            max_inflight: self.max_inflight,
            on_full: self.on_full,
            server_timeout: self.server_timeout,
            lease: self.lease,
            packs_cwd: self.packs_cwd,
            sends_passed: self.sends_passed,
            spill,
            python: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use fairtrial_exec::SpillDir;

    use super::*;

    /// CL-55
    #[test]
    fn options_stand_in_the_query_beside_those_of_the_connection() {
        let url = "redis://h:1/0?queue=q&cls=timing&weight=3&max_queue=7&max_inflight=2&on_full=error&\
                   server_timeout=5s&lease=9s&insecure=1&cwd=packed&pass_env=send&blobs=file%3A%2F%2F%2Fshared";
        let options = Options::from_url(url).unwrap();
        assert_eq!(options.queue.unwrap().as_str(), "q");
        assert_eq!(
            (options.class, options.weight, options.max_queue),
            (Class::Timing, 3, 7)
        );
        assert_eq!(
            (options.max_inflight, options.on_full),
            (Some(2), OnFull::Error)
        );
        assert_eq!(options.server_timeout, Duration::from_secs(5));
        assert_eq!(options.lease, Duration::from_secs(9));
        assert_eq!(options.blobs.as_deref(), Some("file:///shared"));
        assert!(options.packs_cwd && options.sends_passed);
        for (query, key) in [
            ("maxqueue=3", "maxqueue"),
            ("weight=0", "weight"),
            ("cls=gpu", "cls"),
            ("cwd=yes", "cwd"),
            ("pass_env=KEY", "pass_env"),
            ("lease=x", "lease"),
        ] {
            let refused = Options::from_url(&format!("redis://h:1?{query}")).unwrap_err();
            assert_eq!(refused.key, key);
        }
    }

    /// CL-34
    #[test]
    fn a_queue_takes_ten_thousand_tasks_unless_its_options_say_otherwise() {
        assert_eq!(Options::default().max_queue, 10_000);
        let of_url = Options::from_url("redis://h:1/0?weight=3").unwrap();
        assert_eq!(of_url.max_queue, 10_000);
    }

    /// CL-39, CL-55: all that is set arrives; only a queue that was named can be come back to.
    #[test]
    fn a_backend_is_set_up_as_its_options_say() {
        let spill = || SpillPolicy {
            dir: SpillDir::new("/nonexistent"),
            memfd_cap_bytes: u64::MAX,
            memory_limit_bytes: None,
        };
        let url = "redis://h:1/0?queue=q&cls=timing&weight=3&max_queue=7&max_inflight=2&on_full=error&\
                   server_timeout=5s&lease=9s";
        let named = Options::from_url(url).unwrap();
        let named = named.config("batch", spill()).unwrap();
        assert!(named.named && named.queue.as_str() == "q");
        assert_eq!(
            (named.class, named.weight, named.max_queue),
            (Class::Timing, 3, 7)
        );
        assert_eq!(
            (named.max_inflight, named.on_full),
            (Some(2), OnFull::Error)
        );
        assert_eq!(named.server_timeout, Duration::from_secs(5));
        assert_eq!(named.lease, Duration::from_secs(9));
        let drawn = || Options::default().config("batch", spill()).unwrap();
        let (one, other) = (drawn(), drawn());
        assert!(!one.named && one.queue.as_str().starts_with("batch-"));
        assert_ne!(one.queue, other.queue);
    }

    /// CL-55: whoever sets it, in a URL or in Python.
    #[test]
    fn no_lease_is_shorter_than_what_can_be_renewed() {
        let mut options = Options::default();
        options.set("lease", "1ms").unwrap();
        assert_eq!(options.lease, Duration::from_millis(100));
    }
}
