//! Layers put over a place of the file system: the mounts of a workspace, made by the init of a call's namespaces.
//!
//! All is put together in a file system in memory, which is then let go: of what it held only that is left which was
//! mounted elsewhere, and the descriptor by which the launcher finds what was changed. Names in it are short, so that it
//! does not matter how many layers there are or what their paths look like.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::own_mounts;
use super::plan::{Arg, Plan};
use super::world::{HERE, NODEV, NOEXEC, NOSUID, NULL, RDONLY, clear_attributes, set_attributes};
use crate::protocol::launcher::{SharedTree, Step, Tree, TreeUpper};

const STEP: Step = Step::Tree;

/// The init's descriptor of the directory that changes go to.
pub const UPPER: i32 = 10;

/// Files and directories that a quota of memory allows, by its bytes: one for each page, and a few in any case.
const PAGE: u64 = 4096;
const LEAST_INODES: u64 = 16 << 10;

/// What is put together where, and which directory is to be the root.
pub(super) struct Ground<'a> {
    /// An empty directory to put it together in.
    pub(super) staging: &'a str,
    /// Before every absolute path that is mounted on; empty if the root stays what it is.
    pub(super) root: &'a str,
}

/// Adds the mounts.
pub(super) fn put_up(plan: &mut Plan, tree: &Tree, ground: &Ground<'_>) {
    let mut build = Build { plan, tree, ground };
    build.stage();
    let lower = build.layers();
    let (upper, work) = build.upper();
    build.attributes_of(tree.layers.last(), upper);
    let shared: Vec<String> = (0..tree.shared.len())
        .map(|n| build.stage_shared(n))
        .collect();
    build.overlay(&lower, upper, work, &tree.at);
    build.hold(upper);
    for (n, staged) in shared.iter().enumerate() {
        build.share(n, staged);
    }
    build.hide();
    build.keep_private();
    build.let_go();
}

/// Places of the host, not of the tree, that are to be covered, and whether each is a directory. What is not there need
/// not be.
pub(super) fn covered(tree: &Tree) -> Vec<(PathBuf, bool)> {
    let outside = tree.hidden.iter().map(|hidden| path(hidden));
    let outside = outside.filter(|hidden| !hidden.starts_with(path(&tree.at)));
    let found = outside.filter_map(|hidden| {
        let place = hidden.canonicalize().ok()?;
        let is_directory = place.metadata().ok()?.is_dir();
        Some((place, is_directory))
    });
    found
        .filter(|(place, _)| !place.starts_with(path(&tree.at)))
        .collect()
}

/// Has all of the host be read-only but these places: Landlock sees to what is in files, and to their names, but not to
/// modes, times, owners and extended attributes.
pub(super) fn keep_the_host(plan: &mut Plan, tree: &Tree, writable: &[Vec<u8>]) {
    // The tree and what is private are put over the host's.
    let is_own = |place: &[u8]| {
        path(place).starts_with(path(&tree.at)) || tree.private.as_deref() == Some(place)
    };
    let places = writable.iter().filter(|place| !is_own(place));
    own_mounts::make_read_only_except(plan, STEP, places.map(Vec::as_slice));
}

/// A `/dev/shm` that nobody else sees, as large as what may be changed.
pub(super) fn own_memory(plan: &mut Plan, tree: &Tree) {
    let options = match tree.upper {
        TreeUpper::Memory { bytes } => format!("mode=1777,size={bytes}"),
        TreeUpper::Disk { .. } => "mode=1777".to_owned(),
    };
    let (kind, place) = (plan.text(b"tmpfs"), plan.text(b"/dev/shm"));
    let options = plan.text(options.as_bytes());
    let flags = Arg::Value(libc::MS_NOSUID | libc::MS_NODEV);
    let arguments = [kind, place, kind, flags, options];
    plan.try_call(STEP, libc::SYS_mount, &arguments); // not every host has one
}

struct Build<'a> {
    plan: &'a mut Plan,
    tree: &'a Tree,
    ground: &'a Ground<'a>,
}

impl Build<'_> {
    fn stage(&mut self) {
        let bytes = match self.tree.upper {
            TreeUpper::Memory { bytes } => bytes,
            // Only directories to mount on are in it, and what is changed of those that others share.
            TreeUpper::Disk { .. } => LEAST_INODES * PAGE,
        };
        let inodes = (bytes / PAGE).max(LEAST_INODES);
        let options = format!("size={bytes},nr_inodes={inodes},mode=700");
        let (kind, staging) = (
            self.plan.text(b"tmpfs"),
            self.plan.text(self.ground.staging.as_bytes()),
        );
        let options = self.plan.text(options.as_bytes());
        let flags = Arg::Value(libc::MS_NOSUID | libc::MS_NODEV);
        self.plan.call(
            STEP,
            libc::SYS_mount,
            &[kind, staging, kind, flags, options],
        );
        self.plan.call(STEP, libc::SYS_chdir, &[staging]);
        self.plan.call(STEP, libc::SYS_umask, &[Arg::Value(0)]);
    }

    /// The names of all layers, topmost first, as the kernel wants them.
    fn layers(&mut self) -> String {
        let tree = self.tree;
        let mut names: Vec<String> = (0..tree.layers.len()).map(|n| n.to_string()).collect();
        for (name, layer) in names.iter().zip(&tree.layers) {
            self.bring(layer, name, libc::MS_BIND);
        }
        // What is shared is mounted on directories that no command made: the lowest layer has them.
        if !tree.shared.is_empty() {
            self.directory("m");
            for shared in &tree.shared {
                let within = path(&shared.at).strip_prefix(path(&tree.at));
                let within = within.unwrap_or(Path::new(""));
                self.directories(&Path::new("m").join(within));
            }
            names.push("m".to_owned());
        }
        names.join(":")
    }

    /// The names of the directories that changes go to, and that the kernel works in.
    fn upper(&mut self) -> (&'static str, &'static str) {
        match &self.tree.upper {
            TreeUpper::Memory { .. } => {
                self.directory("u");
                self.directory("w");
                ("u", "w")
            }
            TreeUpper::Disk { directory } => {
                self.bring(directory, "k", libc::MS_BIND);
                let kept = self.plan.text(b"k");
                clear_attributes(self.plan, STEP, kept, RDONLY, 0);
                self.directory("k/upper");
                self.directory("k/work");
                ("k/upper", "k/work")
            }
        }
    }

    /// A merged directory has the attributes of its topmost layer, and the topmost is new.
    fn attributes_of(&mut self, of: Option<&Vec<u8>>, name: &str) {
        let Some(found) = of.and_then(|of| path(of).metadata().ok()) else {
            return; // then it cannot be mounted either, which tells why
        };
        let name = self.plan.text(name.as_bytes());
        let mode = Arg::Value(u64::from(found.mode() & 0o7777));
        self.plan
            .call(STEP, libc::SYS_fchmodat, &[HERE, name, mode]);
        let time = [found.mtime(), found.mtime_nsec()].map(i64::to_ne_bytes);
        let times = self.plan.bytes(&[time, time].concat().concat());
        let arguments = [HERE, name, times, NULL];
        self.plan.call(STEP, libc::SYS_utimensat, &arguments);
    }

    /// Before the tree is put over the place where it may come from.
    fn stage_shared(&mut self, n: usize) -> String {
        let (tree, name) = (self.tree, format!("s{n}"));
        self.bring(&tree.shared[n].source, &name, libc::MS_BIND | libc::MS_REC);
        let place = self.plan.text(name.as_bytes());
        let attributes = RDONLY | NOSUID | NODEV;
        set_attributes(self.plan, STEP, place, attributes, libc::AT_RECURSIVE);
        for (over, layer) in tree.shared[n].layers.iter().enumerate() {
            self.bring(layer, &format!("s{n}-{over}"), libc::MS_BIND);
        }
        name
    }

    fn share(&mut self, n: usize, staged: &str) {
        let tree = self.tree;
        let SharedTree {
            at,
            source,
            layers,
            writable,
        } = &tree.shared[n];
        self.directories_of_the_tree(at);
        if !writable {
            let flags = libc::MS_BIND | libc::MS_REC;
            return self.mount(staged.as_bytes(), at, flags);
        }
        let (upper, work) = match &tree.upper {
            TreeUpper::Memory { .. } => (format!("c{n}/upper"), format!("c{n}/work")),
            TreeUpper::Disk { .. } => (format!("k/shared/{n}/upper"), format!("k/shared/{n}/work")),
        };
        self.directories(Path::new(&upper));
        self.directory(&work);
        self.attributes_of(Some(source), &upper);
        let names = (0..layers.len()).map(|over| format!("s{n}-{over}"));
        let lower: Vec<String> = names.chain([staged.to_owned()]).collect();
        self.overlay(&lower.join(":"), &upper, &work, at);
    }

    fn overlay(&mut self, lower: &str, upper: &str, work: &str, at: &[u8]) {
        // Attributes that unprivileged users may set say less: directories of lower layers are then moved by copying.
        let kind = match self.tree.by_root {
            true => "redirect_dir=on",
            false => "userxattr",
        };
        // Else its end would wait until all of that disk, whoever wrote to it, is written.
        let sync = match self.tree.upper {
            TreeUpper::Memory { .. } => "",
            TreeUpper::Disk { .. } => ",volatile",
        };
        let options = format!(
            "lowerdir={lower},upperdir={upper},workdir={work},index=off,metacopy=off,{kind}{sync}"
        );
        let (kind, target) = (self.plan.text(b"overlay"), self.target(at));
        let options = self.plan.text(options.as_bytes());
        let flags = Arg::Value(libc::MS_NOSUID | libc::MS_NODEV);
        self.plan
            .call(STEP, libc::SYS_mount, &[kind, target, kind, flags, options]);
    }

    /// Opens what changes go to, under a number that the launcher knows.
    fn hold(&mut self, upper: &str) {
        let upper = self.plan.text(upper.as_bytes());
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let flags = Arg::Value(flags as u64);
        self.plan
            .call(STEP, libc::SYS_openat, &[HERE, upper, flags]);
        let opened = self.plan.keep();
        let (number, flags) = (Arg::Value(UPPER as u64), Arg::Value(libc::O_CLOEXEC as u64));
        self.plan
            .call(STEP, libc::SYS_dup3, &[opened, number, flags]);
        self.plan.call(STEP, libc::SYS_close, &[opened]);
    }

    fn hide(&mut self) {
        let tree = self.tree;
        if tree.hidden.is_empty() {
            return;
        }
        self.make_covers();
        for (place, is_directory) in covered(tree) {
            let cover = if is_directory { "d" } else { "e" };
            let place = place.as_os_str().as_bytes();
            self.mount(cover.as_bytes(), place, libc::MS_BIND);
        }
        // In the tree only the kernel knows whether there is such a place, and what it is.
        let inside = |hidden: &&Vec<u8>| path(hidden).starts_with(path(&tree.at));
        for hidden in tree.hidden.iter().filter(inside) {
            for cover in ["d", "e"] {
                let (cover, target) = (self.plan.text(cover.as_bytes()), self.target(hidden));
                let arguments = [cover, target, NULL, Arg::Value(libc::MS_BIND), NULL];
                self.plan.try_call(STEP, libc::SYS_mount, &arguments);
            }
        }
    }

    /// After all that is covered, for it may be inside that.
    fn keep_private(&mut self) {
        let tree = self.tree;
        if let Some(private) = &tree.private {
            let name = self.plan.text(b"p");
            let arguments = [HERE, name, Arg::Value(0o700)];
            self.plan.call(STEP, libc::SYS_mkdirat, &arguments);
            self.mount(b"p", private, libc::MS_BIND);
        }
    }

    /// An empty directory and an empty file that stay so, wherever they are mounted.
    fn make_covers(&mut self) {
        let (directory, file) = (self.plan.text(b"d"), self.plan.text(b"e"));
        self.plan.call(
            STEP,
            libc::SYS_mkdirat,
            &[HERE, directory, Arg::Value(0o555)],
        );
        let flags = Arg::Value((libc::O_CREAT | libc::O_RDONLY | libc::O_CLOEXEC) as u64);
        let arguments = [HERE, file, flags, Arg::Value(0o444)];
        self.plan.call(STEP, libc::SYS_openat, &arguments);
        let opened = self.plan.keep();
        self.plan.call(STEP, libc::SYS_close, &[opened]);
        for cover in [directory, file] {
            let arguments = [cover, cover, NULL, Arg::Value(libc::MS_BIND), NULL];
            self.plan.call(STEP, libc::SYS_mount, &arguments);
            set_attributes(self.plan, STEP, cover, RDONLY | NOSUID | NODEV | NOEXEC, 0);
        }
    }

    fn let_go(&mut self) {
        let (slash, staging) = (
            self.plan.text(b"/"),
            self.plan.text(self.ground.staging.as_bytes()),
        );
        self.plan.call(STEP, libc::SYS_chdir, &[slash]);
        let detach = Arg::Value(libc::MNT_DETACH as u64);
        self.plan.call(STEP, libc::SYS_umount2, &[staging, detach]);
    }

    /// Has a directory of the host's appear under a short name.
    fn bring(&mut self, source: &[u8], name: &str, flags: u64) {
        self.directory(name);
        let (source, name) = (self.plan.text(source), self.plan.text(name.as_bytes()));
        let arguments = [source, name, NULL, Arg::Value(flags), NULL];
        self.plan.call(STEP, libc::SYS_mount, &arguments);
    }

    fn mount(&mut self, source: &[u8], at: &[u8], flags: u64) {
        let (source, target) = (self.plan.text(source), self.target(at));
        let arguments = [source, target, NULL, Arg::Value(flags), NULL];
        self.plan.call(STEP, libc::SYS_mount, &arguments);
    }

    /// It may be there already, in a directory of the caller's.
    fn directory(&mut self, name: &str) {
        let name = self.plan.text(name.as_bytes());
        self.make(name);
    }

    fn make(&mut self, name: Arg) {
        let arguments = [HERE, name, Arg::Value(0o755)];
        self.plan.try_call(STEP, libc::SYS_mkdirat, &arguments);
    }

    /// A directory and those above it, in what is being put together.
    fn directories(&mut self, place: &Path) {
        let mut above: Vec<&Path> = place.ancestors().collect();
        above.pop(); // nothing at all
        for place in above.into_iter().rev() {
            let name = self.plan.text(place.as_os_str().as_bytes());
            self.make(name);
        }
    }

    /// As the lowest layer has it, unless another layer deletes it.
    fn directories_of_the_tree(&mut self, place: &[u8]) {
        let at = path(&self.tree.at);
        let above = path(place).ancestors();
        let mut above: Vec<&Path> = above.take_while(|place| *place != at).collect();
        above.reverse();
        for place in above {
            let name = self.target(place.as_os_str().as_bytes());
            self.make(name);
            self.must_be_a_directory(name);
        }
    }

    /// A link in a layer may lead anywhere on the host, and what is made there would be made with our rights.
    fn must_be_a_directory(&mut self, name: Arg) {
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let arguments = [HERE, name, Arg::Value(flags as u64)];
        self.plan.call(STEP, libc::SYS_openat, &arguments);
        let opened = self.plan.keep();
        self.plan.call(STEP, libc::SYS_close, &[opened]);
    }

    fn target(&mut self, at: &[u8]) -> Arg {
        let whole = [self.ground.root.as_bytes(), at].concat();
        self.plan.text(&whole)
    }
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}
