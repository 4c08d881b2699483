//! One way to cgroups, tried: a cgroup and a leaf in it are made and removed again.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Access as Permission, AtFlags, CWD, accessat, fgetxattr, fstatfs, statat};
use rustix::io::Errno;

use super::access::{Hierarchy, Kind, Part};
use super::counters::Version;
use super::group;
use super::host::{Host, Place, Which};
use super::owner::EngineName;
use super::reason::Reason;

/// The leaf of a trial.
const LEAF: &str = "leaf";

/// What a way to cgroups came to.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// v2 first.
    pub(super) hierarchies: Vec<Hierarchy>,
    /// Why parts are not in them, as far as known.
    pub(super) missing: Vec<(Part, Reason)>,
}

/// What to try with.
pub(super) struct Attempt<'a> {
    pub(super) host: &'a Host,
    pub(super) without: &'a [Part],
}

impl Attempt<'_> {
    pub(super) fn make(&self, kind: Kind) -> Result<Found, Reason> {
        match kind {
            Kind::Delegated => self.delegated(),
            Kind::RootV2 => self.root_v2(),
            Kind::Hybrid => self.hybrid(),
            Kind::None => Err(Reason::new("switched off", "")),
        }
    }

    /// The nearest cgroup above us that was given to us and holds no process, for only such can hand on controllers.
    /// Failing that our own, without any: it still kills and counts.
    fn delegated(&self) -> Result<Found, Reason> {
        let place = self.host.place(Which::V2)?;
        let own = open(&place.own, Version::V2)?;
        if is_root(&own) {
            return Err(Reason::new(
                "own cgroup is the root, which nobody delegates",
                "",
            ));
        }
        writable(&own).map_err(|errno| Reason::refused(errno, "make cgroups in", &place.own))?;
        let above = place
            .own
            .ancestors()
            .skip(1)
            .take_while(|path| path.starts_with(&place.mount));
        for path in above {
            let Ok(group) = open(path, Version::V2) else {
                break;
            };
            if writable(&group).is_err() || is_root(&group) {
                break;
            }
            if holds_processes(&group) || !self.is_given_to_us(&group) {
                continue;
            }
            if let Ok(found) = self.v2(&place, path, true)
                && found.limits_something()
            {
                return Ok(found);
            }
        }
        let mut found = self.v2(&place, &place.own, false)?;
        let busy = Reason::refused(Errno::BUSY, "hand on controllers from", &place.own);
        found
            .missing
            .extend(Part::ALL.map(|part| (part, busy.clone())));
        Ok(found)
    }

    fn root_v2(&self) -> Result<Found, Reason> {
        let place = self.host.place(Which::V2)?;
        let root = open(&place.mount, Version::V2)?;
        writable(&root).map_err(|errno| Reason::refused(errno, "make cgroups in", &place.mount))?;
        // Only the true root may hold processes beside cgroups with controllers; a container's root is none.
        if !is_root(&root) && holds_processes(&root) {
            return Err(Reason::refused(
                Errno::BUSY,
                "hand on controllers from",
                &place.mount,
            ));
        }
        self.v2(&place, &place.mount, true)
    }

    /// Each v1 controller beneath our own cgroup of it, so that limits above still hold.
    fn hybrid(&self) -> Result<Found, Reason> {
        let mut found = Found::default();
        if !self.without.contains(&Part::Kill) {
            let unified = self
                .host
                .place(Which::V2)
                .and_then(|place| self.v2(&place, &place.own, false));
            found.take(Part::Kill, unified);
        }
        let controllers = [
            (Part::Memory, "memory"),
            (Part::Processes, "pids"),
            (Part::CpuTime, "cpuacct"),
            (Part::CpuShare, "cpu"),
        ];
        for (part, name) in controllers {
            // Also in one hierarchy with another, or by v2: one hierarchy less to move into.
            if !self.without.contains(&part) && !found.has(part) {
                let place = self.host.place(Which::V1(name));
                found.take(
                    part,
                    place.and_then(|place| self.trial(&place, &place.own, Version::V1, &[])),
                );
            }
        }
        // The v2 side alone is another way, unless v1 was left out on purpose.
        let v1 = |hierarchy: &Hierarchy| hierarchy.version == Version::V1;
        let left_out = [Part::Memory, Part::Processes]
            .iter()
            .all(|part| self.without.contains(part));
        if found
            .hierarchies
            .iter()
            .any(|hierarchy| left_out || v1(hierarchy))
        {
            return Ok(found);
        }
        let memory = found.missing.iter().find(|(part, _)| *part == Part::Memory);
        let reason = memory
            .or(found.missing.last())
            .map(|(_, reason)| reason.clone());
        Err(reason.unwrap_or_else(|| Reason::new("switched off", "")))
    }

    fn v2(&self, place: &Place, path: &Path, with_controllers: bool) -> Result<Found, Reason> {
        if !with_controllers {
            return self.trial(place, path, Version::V2, &[]);
        }
        let group = open(path, Version::V2)?;
        let there = group::controllers(&group);
        let mut missing = Vec::new();
        let mut wanted = Vec::new();
        for (part, name) in Part::ALL
            .iter()
            .filter_map(|part| Some((*part, part.controller()?)))
        {
            if self.without.contains(&part) {
                continue;
            }
            if there.iter().any(|has| has == name) {
                wanted.push((part, name));
            } else {
                missing.push((part, self.not_there(name, path)));
            }
        }
        let names: Vec<_> = wanted.iter().map(|(_, name)| *name).collect();
        let refused = group::enable(&group, &names);
        wanted.retain(|(part, name)| {
            let Some((_, errno)) = refused.iter().find(|(refused, _)| refused == name) else {
                return true;
            };
            missing.push((
                *part,
                Reason::refused(*errno, &format!("enable `{name}` in"), path),
            ));
            false
        });
        let names: Vec<_> = wanted.iter().map(|(_, name)| *name).collect();
        let mut found = self.trial(place, path, Version::V2, &names)?;
        found.missing.extend(missing);
        Ok(found)
    }

    fn not_there(&self, controller: &'static str, path: &Path) -> Reason {
        if self.host.place(Which::V1(controller)).is_ok() {
            return Reason::new(
                format!("controller `{controller}` is with cgroup v1 here"),
                "",
            );
        }
        let what = format!(
            "controller `{controller}` is not handed on to `{}`",
            path.display()
        );
        Reason::new(what, "write it to the `cgroup.subtree_control` above")
    }

    /// Makes an engine's cgroup and a leaf in it, looks what the leaf can do, and removes both.
    fn trial(
        &self,
        place: &Place,
        path: &Path,
        version: Version,
        controllers: &[&'static str],
    ) -> Result<Found, Reason> {
        let refused = |errno| Reason::refused(errno, "make a cgroup in", path);
        let base = open(path, version)?;
        let name = trial_name()
            .map_err(|error| Reason::from_io(&error, "read", Path::new("/proc/self/stat")))?;
        let made = group::make(&base, &name).and_then(|engine| {
            let refused = group::enable(&engine, controllers);
            let controllers = controllers
                .iter()
                .copied()
                .filter(|name| refused.iter().all(|(other, _)| other != name));
            let leaf = group::make(&engine, LEAF)?;
            Ok((self.parts(&leaf, version), controllers.collect()))
        });
        let removed = group::remove(base.as_fd(), &*name);
        let (parts, controllers) = made.map_err(refused)?;
        removed.map_err(|errno| Reason::refused(errno, "remove a cgroup from", path))?;
        Ok(Found {
            hierarchies: vec![Hierarchy {
                version,
                base,
                mount: place.mount.clone(),
                parts,
                controllers,
            }],
            missing: Vec::new(),
        })
    }

    fn parts(&self, leaf: &OwnedFd, version: Version) -> Vec<Part> {
        let there = |part: &Part| {
            let file = part.file(version);
            file.is_some_and(|file| statat(leaf, file, AtFlags::SYMLINK_NOFOLLOW).is_ok())
        };
        let wanted = Part::ALL
            .into_iter()
            .filter(|part| !self.without.contains(part));
        wanted.filter(there).collect()
    }

    /// systemd marks what it delegates, and all else is its own; without it whoever may write may use.
    pub(super) fn is_given_to_us(&self, group: &OwnedFd) -> bool {
        let marked = ["user.delegate", "trusted.delegate"].iter().any(|mark| {
            let mut value = [0; 8];
            fgetxattr(group, *mark, &mut value[..])
                .is_ok_and(|length| value[..length.min(8)] == *b"1")
        });
        // A systemd that runs in it was given it, not we.
        let managed = statat(group, "init.scope", AtFlags::SYMLINK_NOFOLLOW).is_ok();
        !managed && (marked || !self.host.systemd)
    }
}

impl Found {
    /// Takes one more hierarchy, or the reason why it is not there.
    fn take(&mut self, part: Part, found: Result<Self, Reason>) {
        match found {
            Ok(found) => {
                self.hierarchies.extend(found.hierarchies);
                self.missing.extend(found.missing);
            }
            Err(reason) => self.missing.push((part, reason)),
        }
    }

    fn has(&self, part: Part) -> bool {
        self.hierarchies
            .iter()
            .any(|hierarchy| hierarchy.parts.contains(&part))
    }

    fn limits_something(&self) -> bool {
        self.has(Part::Memory) || self.has(Part::Processes)
    }

    /// Why a part is not in it.
    pub(super) fn reason(&self, part: Part, without: &[Part]) -> Option<Reason> {
        if self.has(part) {
            return None;
        }
        if without.contains(&part) {
            return Some(Reason::new("switched off", ""));
        }
        let known = self.missing.iter().find(|(missing, _)| *missing == part);
        Some(known.map_or_else(
            || Reason::new("not among what this kernel offers here", ""),
            |(_, reason)| reason.clone(),
        ))
    }
}

/// Opens a cgroup by its path, if that is what is there: something else may be mounted over it.
pub(super) fn open(path: &Path, version: Version) -> Result<OwnedFd, Reason> {
    let magic = match version {
        Version::V1 => libc::CGROUP_SUPER_MAGIC,
        Version::V2 => libc::CGROUP2_SUPER_MAGIC,
    };
    let refused = |errno| Reason::refused(errno, "open", path);
    let group = group::open(CWD, path).map_err(refused)?;
    if i128::from(fstatfs(&group).map_err(refused)?.f_type) != i128::from(magic) {
        let what = format!(
            "`{}` is no {version}: something is mounted over it",
            path.display()
        );
        return Err(Reason::new(what, ""));
    }
    Ok(group)
}

/// Whether cgroups can be made in it, processes moved between them, and controllers handed on.
pub(super) fn writable(group: &OwnedFd) -> rustix::io::Result<()> {
    [".", "cgroup.procs", "cgroup.subtree_control"]
        .iter()
        .try_for_each(|file| accessat(group, *file, Permission::WRITE_OK, AtFlags::EACCESS))
}

/// The hierarchy's true root, which has no type.
pub(super) fn is_root(group: &OwnedFd) -> bool {
    statat(group, "cgroup.type", AtFlags::SYMLINK_NOFOLLOW).err() == Some(Errno::NOENT)
}

/// One that cannot be asked is threaded, and of no use either.
fn holds_processes(group: &OwnedFd) -> bool {
    group::holds_processes(group).unwrap_or(true)
}

/// Swept as an engine's own should this process die right now.
fn trial_name() -> std::io::Result<String> {
    static NEXT: AtomicU32 = AtomicU32::new(u32::MAX);
    let serial = NEXT.fetch_sub(1, Ordering::Relaxed);
    Ok(EngineName::new(std::process::id(), serial)?.to_string())
}
