//! This machine's own engine, in two sizes.

use std::path::Path;

use fairtrial_exec::{LocalBackend, LocalConfig, available_cpus};
use fairtrial_tests::Shell;

use super::{Factory, SECRET};

/// Makes local backends.
pub(crate) struct Local {
    shell: Shell,
    slots: usize,
}

impl Local {
    /// One call at a time.
    pub(crate) fn serially() -> Option<Self> {
        Some(Self::with_slots(1))
    }

    /// As many as there are processors.
    pub(crate) fn with_all_cores() -> Option<Self> {
        Some(Self::with_slots(available_cpus().max(2)))
    }

    fn with_slots(slots: usize) -> Self {
        let shell = Shell::new();
        Self { shell, slots }
    }

    fn config(&self) -> LocalConfig {
        let mut config = LocalConfig::from_env().expect("the test's environment is sound");
        config.max_workers = self.slots;
        config.spill_dir = self.path().join("spill");
        config.node_id = "this-machine".into();
        let mut set = |name: &str, value: &Path| config.host_env.insert(name.into(), value.into());
        set("FAIRTRIAL_CACHE_DIR", &self.path().join("cache"));
        set(Shell::MARK, self.path());
        set(SECRET.0, SECRET.1.as_ref());
        config
    }
}

impl Factory for Local {
    type Backend = LocalBackend;

    fn make(&self) -> LocalBackend {
        LocalBackend::new(self.config())
    }

    fn make_broken(&self) -> LocalBackend {
        LocalBackend::new(LocalConfig {
            launcher: Some("/no/such/launcher".into()),
            ..self.config()
        })
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn nodes(&self) -> Vec<String> {
        vec![self.config().node_id]
    }

    fn path(&self) -> &Path {
        self.shell.path()
    }

    fn end(self) {
        self.shell.assert_nothing_left();
    }
}
