//! Where cgroups are mounted and which are ours, from `mountinfo` and `cgroup` in `/proc/thread-self`. Reads text,
//! touches no cgroup.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::reason::Reason;

/// What the two files say.
#[derive(Debug)]
pub(super) struct Host {
    mounts: Vec<Mount>,
    own: Vec<Membership>,
    /// Whether systemd runs this machine, so that cgroups are its to give.
    pub(super) systemd: bool,
}

/// A hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// The unified one.
    V2,
    /// That of a v1 controller.
    V1(&'static str),
}

/// Where our own cgroup of a hierarchy is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The mount point.
    pub(super) mount: PathBuf,
    /// Our own cgroup's directory, below it.
    pub(super) own: PathBuf,
}

#[derive(Debug)]
struct Mount {
    /// What of the hierarchy is mounted.
    root: PathBuf,
    point: PathBuf,
    /// `None` for v2, else the v1 controllers.
    v1: Option<Vec<Vec<u8>>>,
}

#[derive(Debug)]
struct Membership {
    /// None for v2.
    controllers: Vec<Vec<u8>>,
    is_v2: bool,
    path: PathBuf,
}

impl Host {
    pub(super) fn read() -> io::Result<Self> {
        let mountinfo = std::fs::read("/proc/thread-self/mountinfo")?;
        let membership = std::fs::read("/proc/thread-self/cgroup")?;
        let systemd = Path::new("/run/systemd/system").is_dir();
        Ok(Self::parse(&mountinfo, &membership, systemd))
    }

    /// Lines that are not understood are passed over.
    pub(super) fn parse(mountinfo: &[u8], membership: &[u8], systemd: bool) -> Self {
        let lines = |text| <[u8]>::split(text, |&byte: &u8| byte == b'\n');
        Self {
            mounts: lines(mountinfo).filter_map(mount).collect(),
            own: lines(membership).filter_map(member).collect(),
            systemd,
        }
    }

    /// Our own cgroup in a hierarchy, by the last mount that shows it: a later one hides an earlier.
    pub(super) fn place(&self, which: Which) -> Result<Place, Reason> {
        let mut mounts = self
            .mounts
            .iter()
            .filter(|mount| mount.is(which))
            .rev()
            .peekable();
        if mounts.peek().is_none() {
            return Err(not_mounted(which));
        }
        let own = self
            .own
            .iter()
            .find(|own| own.is(which))
            .ok_or_else(|| not_mounted(which))?;
        let shown = mounts.find_map(|mount| {
            let below = own.path.strip_prefix(&mount.root).ok()?;
            Some(Place {
                mount: mount.point.clone(),
                own: mount.point.join(below),
            })
        });
        shown.ok_or_else(|| {
            let what = format!(
                "own cgroup `{}` is below no mount of it",
                own.path.display()
            );
            Reason::new(what, "mount the cgroup file system inside the container")
        })
    }
}

impl Mount {
    fn is(&self, which: Which) -> bool {
        match (which, &self.v1) {
            (Which::V2, None) => true,
            (Which::V1(name), Some(list)) => list.iter().any(|has| has == name.as_bytes()),
            _ => false,
        }
    }
}

impl Membership {
    fn is(&self, which: Which) -> bool {
        match which {
            Which::V2 => self.is_v2,
            Which::V1(name) => self.controllers.iter().any(|has| has == name.as_bytes()),
        }
    }
}

fn not_mounted(which: Which) -> Reason {
    match which {
        Which::V2 => Reason::new(
            "cgroup v2 is not mounted",
            "mount it: `mount -t cgroup2 none /sys/fs/cgroup`",
        ),
        Which::V1(name) => Reason::new(format!("cgroup v1 `{name}` is not mounted"), ""),
    }
}

/// `36 35 98:0 /root /point rw,relatime shared:1 master:2 - cgroup2 source rw,options`.
fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let (root, point) = (fields.nth(3)?, fields.next()?);
    fields.find(|field| *field == b"-")?; // optional fields end here
    let (kind, options) = (fields.next()?, fields.nth(1)?);
    let v1 = match kind {
        b"cgroup2" => None,
        b"cgroup" => Some(list(options)),
        _ => return None,
    };
    Some(Mount {
        root: path(unescape(root)),
        point: path(unescape(point)),
        v1,
    })
}

/// `4:cpu,cpuacct:/path`, or `0::/path` for v2.
fn member(line: &[u8]) -> Option<Membership> {
    let mut fields = line.splitn(3, |&byte| byte == b':');
    let (number, controllers, own) = (fields.next()?, fields.next()?, fields.next()?);
    let own = path(own.to_vec());
    // Above the namespace's root, or removed: nothing can be made there.
    let usable = own.is_absolute()
        && !own.starts_with("/..")
        && !own.as_os_str().as_encoded_bytes().ends_with(b" (deleted)");
    usable.then(|| Membership {
        controllers: list(controllers),
        is_v2: number == b"0" && controllers.is_empty(),
        path: own,
    })
}

fn list(text: &[u8]) -> Vec<Vec<u8>> {
    text.split(|&byte| byte == b',')
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

fn path(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

/// Undoes `\040` and the like.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if byte == b'\\' => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        plain.push(octal.unwrap_or(byte));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MEMORY: Which = Which::V1("memory");
    const PIDS: Which = Which::V1("pids");

    fn own(host: &Host, which: Which) -> Option<String> {
        Some(host.place(which).ok()?.own.to_str()?.to_owned())
    }

    fn host(mountinfo: &str, membership: &str) -> Host {
        Host::parse(mountinfo.as_bytes(), membership.as_bytes(), false)
    }

    /// SB-28
    #[test]
    fn pure_v2_has_one_place_and_no_v1() {
        let host = host(
            "24 30 0:22 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n\
             31 24 0:27 / /sys/fs/cgroup rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n",
            "0::/user.slice/user-1000.slice/session-3.scope\n",
        );
        let place = host.place(Which::V2).unwrap();
        assert_eq!(place.mount, Path::new("/sys/fs/cgroup"));
        let expected = "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope";
        assert_eq!(place.own, Path::new(expected));
        assert_eq!(own(&host, MEMORY), None);
    }

    /// SB-28
    #[test]
    fn hybrid_has_a_place_for_each_controller() {
        let host = host(
            "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:1 - cgroup cgroup rw,cpu,cpuacct\n\
             35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
             39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
             40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
            "9:name=systemd:/\n8:pids:/\n4:memory:/process_api/59:fc\n2:cpu,cpuacct:/x\n0::/\n",
        );
        let at = |which| own(&host, which).unwrap();
        assert_eq!(at(MEMORY), "/sys/fs/cgroup/memory/process_api/59:fc");
        assert_eq!(at(PIDS), "/sys/fs/cgroup/pids/");
        assert_eq!(at(Which::V1("cpuacct")), "/sys/fs/cgroup/cpu,cpuacct/x");
        assert_eq!(at(Which::V2), "/sys/fs/cgroup/unified/");
        assert!(host.place(Which::V1("cpuset")).is_err());
    }

    /// SB-68
    #[test]
    fn a_container_sees_its_own_part_of_the_hierarchy() {
        // Docker on v1 without a cgroup namespace, and a second mount elsewhere whose name holds blanks.
        let v1 = host(
            "620 610 0:32 /docker/ab12 /sys/fs/cgroup/memory ro,nosuid master:19 - cgroup cgroup rw,memory\n\
             621 610 0:36 /docker/ab12 /my\\040\\134cgroups\\011x/pids rw - cgroup pids rw,pids\n",
            "5:pids:/docker/ab12/inner\n4:memory:/docker/ab12\n",
        );
        assert_eq!(own(&v1, MEMORY).unwrap(), "/sys/fs/cgroup/memory/");
        assert_eq!(own(&v1, PIDS).unwrap(), "/my \\cgroups\tx/pids/inner");
        // With a namespace, read-only: that shows when something is tried.
        let v2 = host(
            "700 690 0:27 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n",
            "0::/\n",
        );
        assert_eq!(own(&v2, Which::V2).unwrap(), "/sys/fs/cgroup/");
    }

    /// SB-68
    #[test]
    fn a_cgroup_that_no_mount_shows_is_told() {
        let mount = "31 24 0:27 /docker/other /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let elsewhere = host(mount, "0::/docker/ab12\n")
            .place(Which::V2)
            .unwrap_err();
        assert!(elsewhere.what.contains("`/docker/ab12`"), "{elsewhere}");
        let mount = "31 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        for unusable in [
            "0::/../sibling\n",
            "0::/gone (deleted)\n",
            "0::\n",
            "\n",
            "",
        ] {
            assert_eq!(own(&host(mount, unusable), Which::V2), None, "{unusable:?}");
        }
        // Seen from a namespace inside, the mount's root is above.
        let mount = "31 24 0:27 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(own(&host(mount, "0::/\n"), Which::V2), None);
    }

    /// SB-28
    #[test]
    fn no_cgroups_and_nonsense_are_no_place() {
        for nonsense in [
            "",
            "\n\n",
            "31 24 0:27 / /sys/fs/cgroup rw -",
            "a b c d e f - cgroup2",
            "- - -",
        ] {
            let found = host(nonsense, "0::/\n").place(Which::V2).unwrap_err();
            assert!(found.what.contains("not mounted"), "{nonsense:?}: {found}");
        }
        assert_eq!(unescape(br"\04\400\\x\040"), br"\04\400\\x ");
    }

    /// SB-28
    #[test]
    fn the_later_of_two_mounts_counts() {
        let host = host(
            "31 24 0:27 / /old rw - cgroup2 cgroup2 rw\n32 24 0:27 / /new rw - cgroup2 cgroup2 rw\n",
            "0::/a\n",
        );
        assert_eq!(own(&host, Which::V2).unwrap(), "/new/a");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            one in prop::collection::vec(any::<u8>(), 0..200),
            other in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let host = Host::parse(&one, &other, true);
            _ = (host.place(Which::V2), host.place(MEMORY));
        }
    }
}
